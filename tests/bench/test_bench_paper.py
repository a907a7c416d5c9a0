"""The packaged numbers against what the paper says elsewhere: its largest gains, and rows as it prints them."""

from __future__ import annotations

from collections import Counter

import pytest

from pnml_bench.paper import PaperCell, paper_cells

FAR_OOD = ["isun", "lsun_resize", "lsun_crop", "tinyimagenet_resize", "tinyimagenet_crop", "uniform", "gaussian"]
CIFAR_OOD = [*FAR_OOD, "svhn"]
SVHN_OOD = [*FAR_OOD, "cifar10", "cifar100"]
PAIRS = [(ind, ood) for ind in ("cifar100", "cifar10") for ood in CIFAR_OOD]
ALL_PAIRS = [*PAIRS, *(("svhn", ood) for ood in SVHN_OOD)]


def expected_cells() -> Counter[tuple[str, ...]]:
    """Return every (model, ind, ood, method, metric) of the paper, from its description of the experiments."""
    metrics = ("auroc", "tnr_at_tpr95", "detection_accuracy")
    large = [(m, *pair) for m in ("densenet-bc-100", "resnet-34") for pair in ALL_PAIRS]
    methods = ("baseline", "odin", "gram", "oecc")
    cells = [(*run, method, metric) for run in large for method in methods for metric in metrics]
    cells += [("wideresnet-40-2", *pair, "energy", metric) for pair in PAIRS for metric in metrics]
    imagenet_ood = [ood for ood in [*SVHN_OOD, "svhn"] if "tiny" not in ood]
    cells += [(m, "imagenet30", ood, "baseline", "auroc") for m in ("resnet-18", "resnet-101") for ood in imagenet_ood]
    return Counter(cells)


def test_every_cell_of_the_paper_is_packaged_once() -> None:
    expected = expected_cells()
    assert expected.total() == 664
    assert Counter((*cell.key, cell.metric) for cell in paper_cells()) == expected


def largest_gain(model: str, method: str, metric: str) -> float:
    gains = [c.plus_pnml - c.alone for c in paper_cells() if (c.model, c.method, c.metric) == (model, method, metric)]
    return max(gains)


@pytest.mark.parametrize(
    ("model", "method", "metric", "gain"),
    [
        ("densenet-bc-100", "baseline", "auroc", 69.4),
        ("densenet-bc-100", "odin", "auroc", 49.4),
        ("densenet-bc-100", "gram", "auroc", 3.1),
        ("densenet-bc-100", "oecc", "auroc", 2.2),
        ("resnet-34", "baseline", "auroc", 41.5),
        ("resnet-34", "odin", "auroc", 11.9),
        ("resnet-34", "gram", "auroc", 2.4),
        ("resnet-34", "oecc", "auroc", 2.1),
        ("wideresnet-40-2", "energy", "auroc", 15.6),
        ("wideresnet-40-2", "energy", "tnr_at_tpr95", 90.4),
        ("wideresnet-40-2", "energy", "detection_accuracy", 15.9),
        ("resnet-18", "baseline", "auroc", 9.8),
        ("resnet-101", "baseline", "auroc", 8.23),
    ],
)
def test_largest_gains_are_those_of_the_captions(model: str, method: str, metric: str, gain: float) -> None:
    assert largest_gain(model, method, metric) == pytest.approx(gain, abs=1e-9)


PRINTED = [
    ("densenet-auroc", "cifar100", "lsun_crop", "80.1 / 93.1  91.5 / 93.1  91.4 / 94.5  93.9 / 96.1"),
    ("densenet-tnr", "svhn", "gaussian", "88.7 / 99.7  95.6 / 100  100 / 100  100 / 100"),
    ("densenet-detection", "cifar10", "svhn", "83.2 / 94.0  88.1 / 95.1  95.8 / 97.3  97.4 / 99.3"),
    ("resnet-auroc", "cifar10", "lsun_resize", "91.1 / 96.6  94.1 / 97.7  99.9 / 100  100 / 99.9"),
    ("resnet-tnr", "cifar100", "gaussian", "0.0 / 13.7  4.5 / 66.8  100 / 100  100 / 100"),
    ("resnet-detection", "svhn", "cifar100", "89.6 / 92.5  89.0 / 93.1  92.4 / 96.1  97.0 / 98.5"),
    ("wideresnet-energy", "cifar100", "gaussian", "92.0 / 99.8  9.6 / 100  92.3 / 99.8"),
    ("imagenet30", "imagenet30", "cifar100", "92.15 / 92.15  93.39 / 99.58"),
]


@pytest.mark.parametrize(("table", "ind", "ood", "printed"), PRINTED)
def test_rows_are_as_printed(table: str, ind: str, ood: str, printed: str) -> None:
    row: list[PaperCell] = [c for c in paper_cells() if (c.table, c.ind, c.ood) == (table, ind, ood)]
    numbers = [tuple(float(number) for number in pair.split(" / ")) for pair in printed.split("  ")]
    assert [(cell.alone, cell.plus_pnml) for cell in row] == numbers
