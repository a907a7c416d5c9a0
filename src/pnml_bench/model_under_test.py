"""A network under test: its detector and methods, fitted once, and its image sets, embedded once."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import torch

from pnml.backend.progress import track
from pnml.core.detector import Detector
from pnml_bench import zoo
from pnml_bench.clock import Clock, Memory, watched_memory
from pnml_bench.data import load
from pnml_bench.methods import Method, Odin, PublishedDetector
from pnml_bench.methods.view import View
from pnml_bench.protocol import NOISE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from pnml_bench.data import ImageSet
    from pnml_bench.options import Options, Variant


_LARGEST = 1 << 28  # bytes of a set that is kept; larger ones are loaded again


class DatasetCache:
    """Loads image sets and keeps those of moderate size.

    Args:
        limit: take at most this many images of every set.

    >>> cache = DatasetCache(limit=5)
    >>> cache.load("uniform")
    ImageSet('uniform', 'test', 5 images of 32×32 pixels)
    >>> cache.load("uniform") is cache.load("uniform")
    True
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._kept: dict[tuple[str, str, int, int | None], ImageSet] = {}

    def load(self, name: str, *, split: str = "test", seed: int = 0, size: int | None = None) -> ImageSet:
        """Return a set as :func:`pnml_bench.data.load` does, loaded at most once if it is of moderate size."""
        key = name, split, seed, size
        if key in self._kept:
            return self._kept[key]
        images = load(name, split=split, limit=self.limit, seed=seed, size=size)
        if prod(images.images.shape) <= _LARGEST:
            self._kept[key] = images
        return images


class FittedMethod(NamedTuple):
    """A method, and the seconds and the memory that fitting it took."""

    method: Method
    seconds: dict[str, float]
    memory: Memory


class ModelUnderTest:
    """One network with its in-distribution sets, its fitted detector and its fitted methods.

    Args:
        model: the network's architecture.
        ind: the in-distribution set.
        checkpoint: the name or the file of the network's weights.
        options: how to run.
        cache: loads the image sets.
        with_features: whether methods will need features of earlier layers, to be computed along with the embeddings.

    Raises:
        DataNotFoundError: the set is absent.
        OSError, ValueError: the weights are absent, or are not what they should be.
    """

    def __init__(
        self,
        model: str,
        ind: str,
        checkpoint: str,
        options: Options,
        cache: DatasetCache,
        *,
        with_features: bool = False,
    ) -> None:
        self.start(options, with_features=with_features)
        self.cache = cache
        published = zoo.CHECKPOINTS.get(checkpoint)
        self._knows_labels = published is None or published.trained_on == ind
        with self.clock.lap() as loading, self.clock("load"):
            train, test = cache.load(ind, split="train"), cache.load(ind)
            self.network = zoo.load(checkpoint, architecture=model).to(options.torch_device)
        self.seconds |= loading
        self.train, self.ind = self._view(train), self._view(test)

    def start(self, options: Options, *, with_features: bool) -> None:
        """Set what every network under test begins with."""
        self.options = options
        self.clock = Clock(options.torch_device)
        self._with_features = with_features
        self._is_fitted = False
        self._methods: dict[tuple[str, bool], FittedMethod] = {}
        self.seconds: dict[str, float] = {}

    def fit(self) -> ModelUnderTest:
        """Run the training set and the test set through the network, if that has not been done."""
        if self._is_fitted:
            return self
        with self.clock.lap() as passed:
            with self.clock("train_embedding"):
                self.embed(self.train)
            with self.clock("fit"):
                self.detector = self._fit_detector()
            with self.clock("ind_embedding"):
                self.embed(self.ind)
        self.seconds = {**self.seconds, **passed}
        self._is_fitted = True
        return self

    def embed(self, view: View) -> None:
        """Run an image set through the network, and keep what the methods need."""
        if self._with_features:
            view.features(self.train.layers)
        _ = view.outputs

    def load(self, ood: str) -> list[View]:
        """Load an OOD set, several draws of it if it is noise, in the size of the in-distribution images.

        Raises:
            DataNotFoundError: the set is absent.
        """
        seeds = range(self.options.noise_seeds if ood in NOISE else 1)
        size = self.ind.images.images.shape[1]
        with self.clock("load"):
            return [self._view(self.cache.load(ood, seed=seed, size=size)) for seed in seeds]

    def method(self, name: str, variant: Variant) -> FittedMethod:
        """Return a method, fitted when it is first asked for."""
        key = name, variant.oracle
        if key not in self._methods:
            made = Odin(oracle=True) if variant.oracle else self.options.methods[name]()
            watched = watched_memory(self.device_of(made))
            with watched as memory, self.clock.lap() as seconds, self.clock("method_fit"):
                made.fit(self.train)
            self._methods[key] = FittedMethod(made, seconds, memory)
        fitted = self._methods[key]
        if fitted.method.composes:
            fitted.method.combine(self.published_detector if variant.published else self.detector)
        return fitted

    @cached_property
    def published_detector(self) -> PublishedDetector:
        """What takes the place of the detector in the published arithmetic."""
        head = self.network.head
        return PublishedDetector(head.weight.detach(), head.bias.detach(), self.train.embeddings)

    def device_of(self, method: Method) -> torch.device:
        """Return the device on which a method computes."""
        return torch.device(method.runs_on) if method.runs_on else self.options.torch_device

    @cached_property
    def accuracy(self) -> float | None:
        """The network's accuracy on the test set in percent, where its classes are those of the set."""
        if not self._knows_labels:
            return None
        right = self.ind.logits.argmax(dim=-1).cpu().numpy() == self.ind.images.labels
        return 100 * float(right.mean())

    def _view(self, images: ImageSet) -> View:
        return View(self.network, images, batch_size=self.options.images_at_once, track=show)

    def _fit_detector(self) -> Detector:
        head = self.network.head
        detector = Detector(head.weight.detach(), head.bias.detach(), embedding_scale="paper")
        detector.fit(self.train.embeddings)
        _ = detector.subspace
        return detector


@contextmanager
def full_precision() -> Iterator[None]:
    """Turn TF32 off within the context, so that float32 convolutions and products keep float32's precision."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def show(batches: Iterable[Tensor], what: str, count: int) -> Iterable[Tensor]:
    """Show the progress of a pass over a set."""
    return track(batches, what, total=count)
