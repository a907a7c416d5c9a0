"""The result of one benchmark cell, and the run that measured it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pnml_bench.environment import environment, git_state

if TYPE_CHECKING:
    from pnml.metrics import Metrics

PAPER_STUDY = "paper"
"""The study that results belong to unless another is named."""

OWN_STUDY = "own"
"""The study of networks and sets of one's own, unless another is named."""

NO_IMAGES, NO_WEIGHTS = "image set absent: ", "checkpoint absent: "
"""How the reasons begin why cells could not be run."""

STAGES = (
    "load",
    "train_embedding",
    "fit",
    "ind_embedding",
    "ood_embedding",
    "method_fit",
    "score",
    "regret",
    "metrics",
)
"""The stages that ``Result.seconds`` may hold, in the order in which they are run."""

_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")


@dataclass(frozen=True)
class Scores:
    """The metrics of a method alone and, where it was composed with pNML, with it."""

    method: Metrics
    plus_pnml: Metrics | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One start of the benchmark.

    Attributes:
        command: the command that measures one cell, with the cell's names in braces: ``--model {model}``.
        commit: the revision of the code, None where it is unknown.
        dirty: whether the code differed from that commit, None where it is unknown.
        device: where the networks were run.
        versions: what :func:`pnml_bench.environment.environment` returns.
        date: when the run started, as an ISO 8601 time.
    """

    command: str = ""
    commit: str | None = None
    dirty: bool | None = None
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""

    @property
    def run_id(self) -> str:
        """The date and a digest of all entries."""
        day = "".join(character for character in self.date[:19] if character.isdigit())
        return f"{day}-{digest(asdict(self))[:6]}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The metrics of one cell and how they were measured, or the reason why it was not run.

    Attributes:
        study: what the result belongs to; results of different studies are never shown together.
        counts: the numbers of samples, "train", "ind" and "ood".
        accuracy: of the network on the in-distribution test set in percent, None where it is unknown.
        rank: of the training embeddings.
        memory_bytes: the peak of fitting and scoring, beyond the network and the embeddings.
        memory_device: the kind of device on which that memory was taken.
        settings: anything JSON can hold.
        seconds: the wall time of each of ``STAGES``.
        date: when the cell was finished, as an ISO 8601 time.

    >>> absent = Result(model="resnet-34", ind="cifar10", ood="lsun_crop", method="odin", reason="data absent: LSUN")
    >>> absent.status, absent.cell_id
    ('not run', 'resnet-34__cifar10__lsun_crop__odin')
    """

    model: str
    ind: str
    ood: str
    method: str
    study: str = PAPER_STUDY
    checkpoint: str | None = None
    scores: Scores | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    accuracy: float | None = None
    rank: int | None = None
    memory_bytes: int | None = None
    memory_device: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    date: str = ""
    run: Run = field(default_factory=Run)
    reason: str | None = None

    def __post_init__(self) -> None:
        for part in ("model", "ind", "ood", "method", "study"):
            if not _NAME.fullmatch(getattr(self, part)):
                raise ValueError(
                    f"{part} is {getattr(self, part)!r}: "
                    "expected lower-case letters and digits, joined by single '-', '_' or '.'"
                )
        if (self.scores is None) == (not self.reason):
            raise ValueError(
                f"{self.cell_id} has scores={self.scores} and reason={self.reason!r}: "
                "give the scores of a run, or the reason why there was none"
            )

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Model, in-distribution set, OOD set and method: unique within a study."""
        return self.model, self.ind, self.ood, self.method

    @property
    def cell_id(self) -> str:
        """The key, joined by double underscores."""
        return "__".join(self.key)

    @property
    def status(self) -> str:
        """``"run"`` or ``"not run"``."""
        return "run" if self.scores else "not run"

    @property
    def command(self) -> str:
        """The command that measures this cell."""
        command = self.run.command
        for part, name in zip(("model", "ind", "ood", "method"), self.key, strict=True):
            command = command.replace(f"{{{part}}}", name)
        return command


def start_run(command: str, device: str) -> Run:
    """Return a run that starts now, with the versions and the commit of this process."""
    commit, dirty = git_state()
    return Run(command=command, commit=commit, dirty=dirty, device=device, versions=environment(), date=current_time())


def current_time() -> str:
    """Return the time in UTC, in ISO 8601 to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def digest(value: object) -> str:
    """Return twelve hexadecimal digits that identify a value that JSON can hold."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
