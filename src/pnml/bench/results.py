"""The record of one benchmark run: one JSON file per model, in-distribution set, OOD set and method."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml._version import __version__
from pnml.backend.files import atomic_path
from pnml.metrics import Metrics

if TYPE_CHECKING:
    import os

FORMAT = 1
_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_METRICS = {f.name for f in fields(Metrics)}
_NONE = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    "format": (int,),
    "model": (str,),
    "ind": (str,),
    "ood": (str,),
    "method": (str,),
    "checkpoint": (str, _NONE),
    "scores": (dict, _NONE),
    "counts": (dict,),
    "seeds": (list,),
    "settings": (dict,),
    "seconds": (dict,),
    "command": (str,),
    "versions": (dict,),
    "device": (str,),
    "date": (str,),
    "commit": (str, _NONE),
    "status": (str,),
    "reason": (str, _NONE),
}
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Scores:
    """The metrics of a method alone and, where it was composed with pNML, with it."""

    method: Metrics
    plus_pnml: Metrics | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run found and how; or, with a ``reason`` in place of ``scores``, why it was not run.

    ``counts`` holds the numbers of samples ("train", "ind", "ood"), ``seconds`` the wall time of each stage,
    ``settings`` anything JSON can hold, ``versions`` what :func:`environment` returns, ``date``
    an ISO 8601 time, ``commit`` the revision of the code if it is known.

    >>> absent = Result(model="resnet-34", ind="cifar10", ood="lsun_crop", method="odin", reason="data absent: LSUN")
    >>> absent.status, absent.file_name
    ('not run', 'resnet-34__cifar10__lsun_crop__odin.json')
    """

    model: str
    ind: str
    ood: str
    method: str
    checkpoint: str | None = None
    scores: Scores | None = None
    counts: dict[str, int] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""
    date: str = ""
    commit: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        for part, name in zip(("model", "ind", "ood", "method"), self.key, strict=True):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{part} is {name!r}: expected lower-case letters and digits, joined by single '-', '_' or '.'"
                )
        if (self.scores is None) == (not self.reason):
            raise ValueError(
                f"{self.file_name} has scores={self.scores} and reason={self.reason!r}: "
                "give the scores of a run, or the reason why there was none"
            )

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Model, in-distribution set, OOD set and method: what a result is the only one of in its folder."""
        return self.model, self.ind, self.ood, self.method

    @property
    def status(self) -> str:
        """``"run"`` or ``"not run"``."""
        return "run" if self.scores else "not run"

    @property
    def file_name(self) -> str:
        """The name of its file: the key, joined by double underscores."""
        return "__".join(self.key) + ".json"


def save_result(result: Result, folder: str | os.PathLike[str]) -> Path:
    """Write one result into ``folder``, whole or not at all, in place of an earlier one of the same key.

    >>> import tempfile
    >>> absent = Result(model="resnet-34", ind="cifar10", ood="isun", method="odin", reason="data absent: iSUN")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_result(absent, folder)
    ...     load_results(folder) == [absent]
    True
    """
    record = {"format": FORMAT, **asdict(result), "status": result.status}
    text = json.dumps(record, indent=2, allow_nan=False)
    path = Path(folder) / result.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    return path


def load_results(folder: str | os.PathLike[str]) -> list[Result]:
    """Read every result of ``folder``, in the order of their file names.

    Other files may lie beside them: a result is what is named ``model__ind__ood__method.json``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(folder)!r}: name one that 'pnml bench' has written results to"
        )
    return [_load(path) for path in sorted(folder.glob("*__*__*__*.json"))]


def environment() -> dict[str, str]:
    """Return the versions and hardware a result is computed with: no name of the machine, none of its paths.

    Python, pnml, NumPy, the platform and the CPU; PyTorch and the GPU where there are any.

    >>> environment()["numpy"] == np.__version__
    True
    """
    found = {
        "python": platform.python_version(),
        "pnml": __version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
    }
    if find_spec("torch") is not None:
        import torch

        found["torch"] = str(torch.__version__)
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def _cpu_name() -> str:
    """Return the model name of the processor, or its architecture where the system does not tell."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _load(path: Path) -> Result:
    try:
        return _from_record(json.loads(path.read_text(encoding="utf-8")), path.name)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} is not a result: {error}; upgrade pnml, or delete the file and run that cell again"
        ) from error


def _from_record(record: Any, file_name: str) -> Result:
    """Build a result from parsed JSON, refusing what :func:`save_result` would not have written."""
    if not isinstance(record, dict):
        raise TypeError(f"expected an object, found {type(record).__name__}")
    if record.get("format") != FORMAT:
        raise ValueError(f"its format is {record.get('format')!r}, this version of pnml reads format {FORMAT}")
    if odd := record.keys() ^ _TYPES.keys():
        raise ValueError(f"the entry {min(odd)!r} is {'unknown' if min(odd) in record else 'missing'}")
    for name, kinds in _TYPES.items():
        if not isinstance(record[name], kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{name!r} is {record[name]!r}, expected {expected}")
    values = {name: value for name, value in record.items() if name not in {"format", "status"}}
    result = Result(**{**values, "scores": _scores(record["scores"]), "seeds": tuple(record["seeds"])})
    if record["status"] != result.status:
        raise ValueError(f"its status is {record['status']!r} but its scores say {result.status!r}")
    if file_name != result.file_name:
        raise ValueError(f"it holds what belongs in {result.file_name}")
    return result


def _scores(record: dict[str, Any] | None) -> Scores | None:
    if record is None:
        return None
    if record.keys() != {"method", "plus_pnml"}:
        raise ValueError(f"'scores' has the entries {sorted(record)}, expected 'method' and 'plus_pnml'")
    plus = record["plus_pnml"]
    return Scores(_metrics(record["method"]), None if plus is None else _metrics(plus))


def _metrics(record: Any) -> Metrics:
    if not isinstance(record, dict) or record.keys() != _METRICS:
        raise ValueError(f"a score is {record!r}, expected an object of {', '.join(sorted(_METRICS))}")
    return Metrics(**record)
