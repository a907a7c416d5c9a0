"""Which methods need out-of-distribution data: the one place that says so.

A method is named here if a network is trained with outliers for it, or if its authors choose a hyper-parameter anew for
each network on OOD images or noise and give no rule to choose it without. The benchmark runs such a method with a fixed
value, so its result here may be worse than with a value chosen for the very OOD data. Where in doubt, a method is not
named: k of kNN and NNGuide, the dimension of ViM, the exponent of GEN and the percentiles of ReAct and LTS count as
fixed.
"""

from __future__ import annotations

NEEDS_OOD_DATA = {
    "odin": "the size of its perturbation",
    "oecc": "a network trained with outliers",
    "ash": "the share of activations that it removes",
    "dice": "the share of weights that it removes",
    "vra": "the percentiles that it clips to",
    "scale": "the share of activations that its factor is of",
    "nci": "the weight of the norm of the embedding",
    "nac": "the steepness, the bins and their filling, for every layer",
}
"""What each of these methods needs OOD data for."""


def needs_no_ood_data(method: str) -> bool:
    """Return whether a method needs no OOD data; methods that are not named above do not.

    >>> needs_no_ood_data("pnml"), needs_no_ood_data("dice")
    (True, False)
    """
    return method not in NEEDS_OOD_DATA
