"""The options of ``pnml bench`` for a network, sets and methods of one's own."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import typer

from pnml.cli._inputs import channels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pnml.io.preparation import Preparation
    from pnml_bench.own.benchmark import OwnBenchmark
    from pnml_bench.own.method import OwnMethod

_NAMES = ("model", "ind", "test", "weights", "head", "column", "head-layer", "size", "mean", "std")


@dataclass(frozen=True)
class Given:
    """The values of the options that say where one's own network and sets are."""

    model: str | None
    ind: str | None
    test: str | None
    weights: Path | None
    head: Path | None
    column: str | None
    head_layer: str | None
    size: int | None
    mean: str | None
    std: str | None

    def open(self, limit: int | None) -> OwnBenchmark | None:
        """Open what is one's own; None for a network of the zoo."""
        if self.head is None and ":" not in (self.model or ""):
            self._refuse_others()
            return None
        if self.head is not None:
            self._check_head()
        if self.ind is None:
            raise typer.BadParameter("give the training set of your network, and --test: --ind PATH --test PATH")
        from pnml_bench.own.benchmark import Files, OwnBenchmark

        files = Files(
            self.ind,
            self.test,
            self.model,
            self.weights,
            self.head,
            self.column,
            self.head_layer,
            self._preparation(),
        )
        return OwnBenchmark(files, limit)

    def words(self, ood: str, method: str) -> tuple[str, ...]:
        """Return the words of a command with these options."""
        given = zip(_NAMES, astuple(self), strict=True)
        own = [word for name, value in given if value is not None for word in (f"--{name}", str(value))]
        return (*own, "--ood", ood, "--method", method)

    def _refuse_others(self) -> None:
        """Raise for options that a network of the zoo does not have."""
        for name in _NAMES[2:]:
            if name != "weights" and getattr(self, name.replace("-", "_")) is not None:
                raise typer.BadParameter(
                    f"--{name} goes with a network of your own: --model mine.py:create, or --head for embeddings"
                )
        from pnml_bench.data import SETS

        if self.ind is not None and self.ind not in SETS and any(mark in self.ind for mark in "/.\\"):
            raise typer.BadParameter(
                f"--ind {self.ind} is a path, which goes with a network of your own: --model mine.py:create"
            )

    def _check_head(self) -> None:
        if self.model is not None:
            raise typer.BadParameter("give either --model, or --head for sets of embeddings")
        for name in ("weights", "head-layer", "size", "mean", "std"):
            if getattr(self, name.replace("-", "_")) is not None:
                raise typer.BadParameter(f"--{name} goes with --model, not with --head")

    def _preparation(self) -> Preparation | None:
        mean, std = channels(self.mean, "--mean"), channels(self.std, "--std")
        if self.size is None and mean is None and std is None:
            return None
        from pnml.io.preparation import restore_preparation

        return restore_preparation(None, size=self.size, mean=mean, std=std)


def names_of(text: str, option: str) -> list[str]:
    """Return the names in the value of an option, which have commas between.

    >>> names_of("svhn, noise", "--ood")
    ['svhn', 'noise']
    """
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise typer.BadParameter(f"{text!r} lacks a name: give names with commas between", param_hint=option)
    return names


def load_methods(given: Iterable[str]) -> tuple[list[str], dict[str, type[OwnMethod]]]:
    """Return the names of methods, and those of them that are one's own, as mine.py:Detector, by their names."""
    names, own = [], {}
    for name in given:
        if ":" in name:
            from pnml_bench.own.method import own_method

            method = own_method(name)
            if method.name in own:
                raise typer.BadParameter(f"{name} gives its results the name {method.name!r} of another: rename one")
            own[method.name] = method
            names.append(method.name)
        else:
            names.append(name)
    return names, own
