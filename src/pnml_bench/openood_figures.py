"""What a line of OpenOOD's protocol says of a method: near and far AUROC and FPR@95, in percent.

OOD is the positive class of FPR@95, as it is in OpenOOD: the share of in-distribution pictures flagged by the threshold
that flags 95% of the OOD pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

_NONE = "–"


@dataclass(frozen=True)
class Mean:
    """The mean over seeds, and their standard deviation; None where there is none.

    >>> str(Mean(88.03, 0.25)), str(Mean(90.42))
    ('88.03 ± 0.25', '90.42')
    """

    value: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")


@dataclass(frozen=True)
class Figures:
    """AUROC and FPR@95 over the near and over the far sets; None where there is none."""

    near_auroc: Mean | None = None
    far_auroc: Mean | None = None
    near_fpr: Mean | None = None
    far_fpr: Mean | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The four means, in the order of the fields."""
        means = (self.near_auroc, self.far_auroc, self.near_fpr, self.far_fpr)
        return tuple(_NONE if mean is None else str(mean) for mean in means)

    @property
    def mean_auroc(self) -> float:
        """The mean of the near and the far AUROC, to sort by; -1 where one is lacking."""
        if self.near_auroc is None or self.far_auroc is None:
            return -1.0
        return (self.near_auroc.value + self.far_auroc.value) / 2
