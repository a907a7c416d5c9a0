"""One's own network under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml_bench.model_under_test import ModelUnderTest
from pnml_bench.own.samples import check_labels
from pnml_bench.protocol import NOISE

if TYPE_CHECKING:
    from pnml_bench.methods.view import View
    from pnml_bench.options import Options
    from pnml_bench.own.benchmark import OwnBenchmark


class OwnModelUnderTest(ModelUnderTest):
    """One's own network with its sets.

    Args:
        own: the network and the sets.
        options: how to run.
        with_features: whether methods will need features of earlier layers.
    """

    def __init__(self, own: OwnBenchmark, options: Options, *, with_features: bool) -> None:
        self.start(options, with_features=with_features)
        self._own = own
        self._knows_labels = own.test.labels is not None
        self.network = own.network(with_layers=with_features).to(options.torch_device)
        self.train, self.ind = own.view(self.network, own.train, options), own.view(self.network, own.test, options)

    def fit(self) -> OwnModelUnderTest:
        """Run the training set and the test set through the network, and compare its classes with the labels."""
        super().fit()
        classes = self.network.head.out_features
        for samples in (self._own.train, self._own.test):
            names = getattr(samples, "class_names", None)
            if names is not None and len(names) != classes:
                raise ValueError(
                    f"{samples.name} has {len(names)} class folders, and the network has {classes} classes: expected "
                    "as many, in the order of its outputs; without class folders no labels are read"
                )
            check_labels(samples.name, samples.labels, classes)
        return self

    def load(self, ood: str) -> list[View]:
        """Open an OOD set, several draws of it if it is noise."""
        seeds = range(self.options.noise_seeds if ood in NOISE else 1)
        with self.clock("load"):
            return [self._own.view(self.network, self._own.open_ood(ood, seed), self.options) for seed in seeds]
