"""How the benchmark is run."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pnml_bench.environment import choose_device, environment
from pnml_bench.methods import ALL_METHODS
from pnml_bench.results import PAPER_STUDY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pnml_bench.methods import Method
    from pnml_bench.own.benchmark import OwnBenchmark
    from pnml_bench.own.method import OwnMethod
    from pnml_bench.protocol import Cell


@dataclass(frozen=True)
class Variant:
    """How the numbers of a study are computed where the paper and we differ; by default as we do.

    Attributes:
        oracle: ODIN's ε is chosen on the very OOD set, as for the published rows.
        published: +pNML is computed by the arithmetic of the published code.
    """

    oracle: bool = False
    published: bool = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the benchmark is run.

    Attributes:
        out: the folder for results.
        study: what the results belong to. A limit, the oracle and the published arithmetic, which change numbers on
            purpose, are added to the name, so that such results are never shown among the others.
        device: as PyTorch names it; "auto" takes a CUDA device where there is one.
        limit: take at most this many images of every set, training sets included.
        oracle: run ODIN with its ε chosen on the very OOD set, too, as the published rows did.
        published: compute +pNML by the arithmetic of the published code, too.
        noise_seeds: how often noise is drawn; the results are means.
        batch_size: how many images go through the network at once; by default what suits the device.
        force: run finished cells again.
        checkpoint: a file of weights for all cells, instead of the published ones.
        keep_scores: write every sample's scores into the folder ``scores`` of ``out``, for a report.
        own: a network and sets of one's own, in place of those of the zoo.
        own_methods: classes of one's own by name, beside the known methods.
        asked: the words that name network, sets and methods, where the names of a cell do not say which they are.

    >>> Options(limit=1000).full_study
    'paper-limit-1000'
    """

    out: Path = Path("results")
    study: str = PAPER_STUDY
    device: str = "auto"
    limit: int | None = None
    oracle: bool = False
    published: bool = False
    noise_seeds: int = 1
    batch_size: int | None = None
    force: bool = False
    checkpoint: Path | None = None
    keep_scores: bool = False
    own: OwnBenchmark | None = None
    own_methods: Mapping[str, type[OwnMethod]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("limit", "noise_seeds", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give a number of 1 or more")

    @property
    def full_study(self) -> str:
        """The study of the results that are computed as we do."""
        return self.study_of(Variant())

    def study_of(self, variant: Variant) -> str:
        """Return the study that the results of a variant are written to.

        >>> Options().study_of(Variant(oracle=True, published=True))
        'paper-oracle-published'
        """
        parts = [self.study] if self.limit is None else [self.study, f"limit-{self.limit}"]
        return "-".join(parts + ["oracle"] * variant.oracle + ["published"] * variant.published)

    def variants(self, method: str) -> list[Variant]:
        """Return the variants of a method to run; the oracle first, which computes what the others need, too."""
        oracles = [True, False] if self.oracle and method == "odin" else [False]
        arithmetics = [False, True] if self.published and self.methods[method].composes else [False]
        return [Variant(oracle, published) for oracle in oracles for published in arithmetics]

    @cached_property
    def torch_device(self) -> torch.device:
        """The device, checked."""
        return choose_device(self.device)

    @property
    def images_at_once(self) -> int:
        """The batch size: small on a CPU, whose caches it should fit."""
        return self.batch_size or (50 if self.torch_device.type == "cpu" else 500)

    @property
    def methods(self) -> dict[str, type[Method]]:
        """All methods by name, one's own among them."""
        return {**ALL_METHODS, **self.own_methods}

    def own_record(self, cell: Cell) -> dict[str, Any]:
        """Return what identifies the parts of a cell that are one's own, empty where none is; JSON-able."""
        found: dict[str, Any] = {} if self.own is None else self.own.record(cell.ood)
        if cell.method in self.own_methods:
            found["method"] = self.own_methods[cell.method].code.digest
        return found

    def checkpoint_of(self, cell: Cell) -> str:
        """Return the name of the checkpoint a cell is run on."""
        return self.own.checkpoint if self.own is not None else self.own_checkpoint or cell.checkpoint

    @cached_property
    def own_checkpoint(self) -> str | None:
        """The name of the checkpoint file, if one is given, and the start of its digest, which tells it from others."""
        if self.checkpoint is None:
            return None
        return f"{self.checkpoint.name} ({hashlib.sha256(self.checkpoint.read_bytes()).hexdigest()[:12]})"

    @property
    def device_name(self) -> str:
        """The kind and the name of the device."""
        device = self.torch_device
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else environment()["cpu"]
        return f"{device.type}: {named}"

    @property
    def command(self) -> str:
        """The command line that runs one cell in this way, with the cell's names in braces, or all that was asked for.

        >>> Options(device="cpu", oracle=True).command
        'pnml bench --model {model} --ind {ind} --ood {ood} --method {method} --device cpu --batch-size 50 --oracle'
        """
        words = ["--device", self.torch_device.type, "--batch-size", str(self.images_at_once)]
        words += ["--noise-seeds", str(self.noise_seeds)] if self.noise_seeds > 1 else []
        words += ["--limit", str(self.limit)] if self.limit is not None else []
        words += ["--oracle"] if self.oracle else []
        words += ["--published"] if self.published else []
        words += ["--keep-scores"] if self.keep_scores else []
        words += ["--weights", self.checkpoint.name] if self.checkpoint is not None else []
        words += ["--study", self.study] if self.study != PAPER_STUDY else []
        names = " ".join(f"--{part} {{{part}}}" for part in ("model", "ind", "ood", "method"))
        return f"pnml bench {shlex.join(self.asked) if self.asked else names} {shlex.join(words)}"
