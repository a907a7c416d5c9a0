"""Which results a cell of the paper's tables is measured by, or the reason why it is not.

The paper's own networks come first, networks trained anew stand in for those that cannot be had. ODIN's ε is chosen by
the oracle, as for the paper's rows; without it ODIN stands beside. +pNML is computed by our arithmetic and by that of
the published code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pnml.report.labels import label
from pnml_bench.paper import REMADE
from pnml_bench.results import NO_IMAGES, NO_WEIGHTS, PAPER_STUDY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pnml_bench.paper import PaperCell
    from pnml_bench.results import Result

Network = Literal["paper's", "retrained"]
"""Whose training a network is of: the paper's own, or ours."""

RETRAINED_STUDY = "retrained"
_NO_NETWORK = "the authors' checkpoint cannot be downloaded, and no result of a network trained in its place is shown"
_ORACLE, _PUBLISHED = "-oracle", "-published"
Key = tuple[str, str, str, str]


def base_study(study: str) -> str:
    """Return the name of a study without what the oracle and the published arithmetic add to it.

    >>> base_study("paper-oracle-published")
    'paper'
    """
    return study.removesuffix(_PUBLISHED).removesuffix(_ORACLE)


@dataclass(frozen=True)
class Measured:
    """The results of one cell.

    Attributes:
        main: as the paper has it.
        published: with +pNML by the published arithmetic, None where that was not run.
        without_oracle: of ODIN with an ε that knows no OOD images.
        network: which was measured.
    """

    main: Result
    published: Result | None
    without_oracle: Result | None
    network: Network


@dataclass(frozen=True)
class _Study:
    """The results of a study and of its variants, by key."""

    network: Network
    variants: dict[str, dict[Key, Result]] = field(default_factory=dict)

    def find(self, key: Key) -> Measured | None:
        model, ind, ood, method = key
        oracle = _ORACLE if method == "odin" else ""
        for name in (ood, REMADE.get(ood)):
            if name is None:
                continue
            of_set = model, ind, name, method
            main, published, plain = (self._run(v, of_set) for v in (oracle, oracle + _PUBLISHED, ""))
            if main is not None and not (name in REMADE and "ood" in main.settings.get("notes", {})):
                return Measured(main, published, plain if oracle else None, self.network)
        return None

    def _run(self, variant: str, key: Key) -> Result | None:
        result = self.variants.get(variant, {}).get(key)
        return result if result is not None and result.scores is not None else None

    def reason(self, key: Key) -> str | None:
        """Return why a cell was not run, None where there is no record."""
        for variant in (_ORACLE, ""):
            if (result := self.variants.get(variant, {}).get(key)) is not None:
                if result.scores is None:
                    return result.reason
                if key[2] in REMADE:
                    return f"{label(key[2])} of 2017 cannot be had, and {label(REMADE[key[2]])} was not run"
                return "ODIN was not run with the oracle (--oracle)"
        return None


class Sources:
    """The results that the tables are made of.

    Args:
        results: of all studies.
        study: of the paper's own networks.
        retrained: of networks trained anew; "" for none.
    """

    def __init__(self, results: Iterable[Result], study: str = PAPER_STUDY, retrained: str = RETRAINED_STUDY) -> None:
        self._studies = {study: _Study("paper's")}
        if retrained:
            self._studies[retrained] = _Study("retrained")
        self.keys: set[Key] = set()
        self._absent: set[str] = set()
        measured: set[str] = set()
        for result in results:
            base = base_study(result.study)
            if base not in self._studies:
                continue
            of_variant = self._studies[base].variants.setdefault(result.study.removeprefix(base), {})
            if result.key in of_variant:
                raise ValueError(f"there are two results of {result.cell_id} in {result.study}: give one for each cell")
            of_variant[result.key] = result
            self.keys.add(result.key)
            if result.reason is not None and result.reason.startswith(NO_IMAGES):
                self._absent.add(result.reason.removeprefix(NO_IMAGES))
            elif result.scores is not None:
                measured |= {result.ind, result.ood}
        self._absent -= measured

    def find(self, cell: PaperCell) -> Measured | str:
        """Return the results of a cell, or the reason why there are none."""
        for study in self._studies.values():
            if (found := study.find(cell.key)) is not None:
                return found
        if absent := [name for name in (cell.ind, cell.ood) if name in self._absent]:
            return f"{NO_IMAGES}{label(absent[0])}"
        reasons = [reason for study in self._studies.values() if (reason := study.reason(cell.key)) is not None]
        reason = " ".join((reasons or ["no result"])[-1].split())
        return _NO_NETWORK if reason.startswith(NO_WEIGHTS) else reason
