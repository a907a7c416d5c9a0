"""A network and sets of one's own, opened and checked before anything is run; their cells; the network under test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from pnml.backend.suggest import did_you_mean
from pnml.io.code import load_code
from pnml.io.head import read_head
from pnml.io.model import load_model
from pnml.io.preparation import Preparation
from pnml.pytorch.weights import digest
from pnml_bench.data import SETS
from pnml_bench.model_under_test import ModelUnderTest, show
from pnml_bench.own.embeddings import Embeddings, EmbeddingSource, HeadNetwork, StoredView, digest_head
from pnml_bench.own.names import name_of_code, name_of_file, name_of_ind, same_path
from pnml_bench.own.network import OwnNetwork, OwnView
from pnml_bench.own.pictures import PictureSource
from pnml_bench.own.samples import check_labels
from pnml_bench.own.texts import TextSource
from pnml_bench.protocol import NOISE, Cell, choose_methods, expand_noise
from pnml_bench.zoo import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pnml_bench.methods import Method
    from pnml_bench.methods.view import View
    from pnml_bench.options import Options
    from pnml_bench.own.samples import SampleSet
    from pnml_bench.zoo import Network


class Source(Protocol):
    """Opens sets of one kind."""

    def open(self, name: str, split: str, seed: int = 0) -> SampleSet:
        """Open "train", which comes first, "test", or an OOD set, "ood"; the seed is that of noise."""


@dataclass(frozen=True)
class Files:
    """The options that say where the network and its sets are.

    Attributes:
        ind: the training set: a path, or for pictures also the name of a published set.
        test: the in-distribution test set; None for that of a published set.
        model: ``mine.py:create``; None where there is a ``head``.
        weights: a safetensors file of the model's state.
        head: a file of the last layer, for sets of embeddings.
        column: of texts; or, with a ``head``, of embeddings.
        head_layer: the name of the model's last layer.
        preparation: of pictures; None if nothing was said about it.
    """

    ind: str
    test: str | None
    model: str | None = None
    weights: Path | None = None
    head: Path | None = None
    column: str | None = None
    head_layer: str | None = None
    preparation: Preparation | None = None


class OwnBenchmark:
    """One's own network, its training set and its test set.

    Args:
        files: where they are.
        limit: take at most this many samples of every set.

    Attributes:
        model, ind: their names in results.
        about: what identifies the network, and how samples become its inputs; JSON-able.
        checkpoint: the network and the start of its digest.
        train, test: the in-distribution sets.

    Raises:
        OSError, ValueError: something is missing, or is not what it should be.
    """

    def __init__(self, files: Files, limit: int | None) -> None:
        self.files = files
        self.ind = files.ind if files.ind in SETS else name_of_ind(files.ind)
        self._digests: dict[str, str | None] = {}
        self.source: Source
        self.about: dict[str, Any]
        self.network: Callable[..., Network]
        test = _test_of(files)
        if files.head is not None:
            self._open_head(files.head, limit)
        else:
            self._open_model(limit)
        if self.model in ARCHITECTURES:
            raise ValueError(f"your network gives its results the name {self.model!r}, which is taken: rename its file")
        if files.ind not in SETS and self.ind in {"", *SETS}:
            raise ValueError(f"{files.ind!r} gives its results the name {self.ind!r}: rename it, that one is taken")
        self.train = self.source.open(files.ind, "train")
        if isinstance(self.source, PictureSource):
            self.about["preparation"] = self.source.record()
        self.test = self.source.open(test, "test")
        if self.train.digest is not None and self.train.digest == self.test.digest:
            raise ValueError(
                f"--test {test} holds the samples of --ind {files.ind}: give others, unseen by the network"
            )

    @property
    def checkpoint(self) -> str:
        """The network and the start of its digest, which tells it from others."""
        return f"{self.about['model']} ({self.about['weights'][:12]})"

    def open_ood(self, name: str, seed: int = 0) -> SampleSet:
        """Open an OOD set by name or path."""
        return self.source.open(name, "ood", seed)

    def record(self, ood: str) -> dict[str, Any]:
        """Return what identifies the network and the sets of a cell, JSON-able; published sets are known by name."""
        if ood not in self._digests:
            self._digests[ood] = None if ood in SETS else self.open_ood(ood).digest
        sets = {"train": self.train.digest, "test": self.test.digest, "ood": self._digests[ood]}
        return {**self.about, "sets": {part: found for part, found in sets.items() if found is not None}}

    def view(self, network: Network, samples: SampleSet, options: Options) -> View:
        """Return a network together with a set."""
        if isinstance(samples, Embeddings):
            return StoredView(cast("HeadNetwork", network), samples)
        own = cast("OwnNetwork", network)
        size = options.images_at_once
        return OwnView(own, samples, device=options.torch_device, batch_size=size, track=show)

    def _open_head(self, head: Path, limit: int | None) -> None:
        network = HeadNetwork(*read_head(head))
        columns = () if self.files.column is None else tuple(name.strip() for name in self.files.column.split(","))
        self.model = name_of_file(head.name)
        self.about = {"model": head.name, "weights": digest_head(network), "columns": list(columns)}
        self.source = EmbeddingSource(network.head.in_features, columns, limit)
        self.network = lambda *, with_layers: network  # noqa: ARG005 - layers are in the files

    def _open_model(self, limit: int | None) -> None:
        spec = self.files.model or ""
        model, transform = load_model(spec, self.files.weights)
        code = load_code(spec, "--model", "function", "create")
        self.model = name_of_code(spec)
        self.about = {"model": _file_and_name(spec), "file": code.digest, "weights": digest(model)}
        given = self.files.preparation
        if self.files.column is not None:
            if transform is None:
                raise ValueError(
                    f"--column {self.files.column} is a column of texts, and {spec} returns a model alone: return "
                    "(model, tokenize), where tokenize(texts) makes of a list of texts what the model takes"
                )
            if given is not None:
                raise ValueError("--size, --mean and --std are for pictures: leave them out with --column")
            self.source = TextSource(self.files.column, transform, limit)
            self.about["column"], what = self.files.column, "texts"
        else:
            if transform is not None and given is not None:
                raise ValueError(f"{spec} brings its own transform: leave --size, --mean and --std out")
            preparation = Preparation(transform=transform) if transform is not None else given or Preparation()
            self.source = PictureSource(preparation, limit)
            what = "pictures"
        layer = self.files.head_layer
        self.network = lambda *, with_layers: OwnNetwork(model, head_layer=layer, with_layers=with_layers, what=what)


def _test_of(files: Files) -> str:
    """Return the name or path of the in-distribution test set."""
    if files.ind in SETS:
        if files.test is not None:
            raise ValueError(f"--ind {files.ind} is a published set with its own test set: leave --test out")
        if "train" not in SETS[files.ind].counts:
            raise ValueError(f"--ind {files.ind} has no training set: choose another")
        return files.ind
    if files.test is None:
        raise ValueError(
            f"--ind {files.ind} is the training set: give the in-distribution samples to compare others with, too, "
            "which the network was not trained on: --test PATH"
        )
    if same_path(files.test, files.ind):
        raise ValueError(
            f"--test {files.test} is the training set itself, on which methods are fitted: give samples that the "
            "network was not trained on"
        )
    return files.test


def _file_and_name(spec: str) -> str:
    """Return a factory without the folders of this machine.

    >>> _file_and_name("nets/mine.py:create")
    'mine.py:create'
    """
    return spec.replace("\\", "/").rpartition("/")[2]


_OF_THE_ZOO = ("odin", "gram", "oecc")
"""Methods that reach into networks of the zoo: for the scale of their inputs, their taps, or a tuned checkpoint."""


def plan_own(
    own: OwnBenchmark, ood: Sequence[str], method: Sequence[str], own_methods: Mapping[str, type[Method]]
) -> list[Cell]:
    """Return the cells of one's own network.

    Args:
        own: the network and its in-distribution sets.
        ood: paths, and for pictures also names of published sets, or "noise" for those that are drawn.
        method: names of methods, or of groups of them.
        own_methods: classes of one's own by name.
    """
    methods = choose_methods(method, own_methods)
    if inside := [name for name in methods if name in _OF_THE_ZOO]:
        raise ValueError(f"the method {inside[0]!r} is for the networks of the zoo: leave it out for your own")
    oods = expand_noise(ood)
    for name in oods:
        _check_ood(own, name)
    cells = list(dict.fromkeys(Cell(own.model, own.ind, name, one) for name in oods for one in methods))
    paths: dict[str, str] = {}
    for cell in cells:
        if paths.setdefault(cell.ood_name, cell.ood) != cell.ood:
            raise ValueError(
                f"{paths[cell.ood_name]!r} and {cell.ood!r} give their results one name, {cell.ood_name!r}: rename one"
            )
    return cells


def _check_ood(own: OwnBenchmark, name: str) -> None:
    if name == "all":
        raise ValueError("--ood all is for the sets of the paper: name the sets to tell apart from yours")
    if name == own.files.ind or (name not in SETS and same_path(name, own.files.ind, own.files.test)):
        raise ValueError(f"the OOD set {name!r} is an in-distribution set itself: choose another")
    if name in SETS and not isinstance(own.source, PictureSource):
        raise ValueError(f"the OOD set {name!r} holds pictures, and {own.train!r} does not: give a file like it")
    if name not in SETS and not Path(name).exists():
        known = (
            f", or some of {', '.join(SETS)}{did_you_mean(name, SETS)}" if isinstance(own.source, PictureSource) else ""
        )
        raise ValueError(f"there is no OOD set {name!r}: give a path{known}")
    if name not in SETS and name_of_file(name) in {"", *SETS}:
        raise ValueError(f"{name!r} gives its results the name {name_of_file(name)!r}: rename it, that one is taken")


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
