"""A network and sets of one's own, opened and checked before anything is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pnml.io.code import load_code
from pnml.io.head import read_head
from pnml.io.model import load_model
from pnml.io.preparation import Preparation
from pnml.pytorch.weights import digest
from pnml_bench.data import SETS
from pnml_bench.model_under_test import show
from pnml_bench.own.embeddings import Embeddings, EmbeddingSource, HeadNetwork, StoredView, digest_head
from pnml_bench.own.names import name_of_code, name_of_file, name_of_ind, same_path
from pnml_bench.own.network import OwnNetwork
from pnml_bench.own.pictures import PictureSource
from pnml_bench.own.texts import TextSource
from pnml_bench.own.view import OwnView
from pnml_bench.zoo import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pnml_bench.methods.view import View
    from pnml_bench.options import Options
    from pnml_bench.own.samples import SampleSet
    from pnml_bench.zoo import Network


class Source(Protocol):
    """Opens sets of one kind."""

    def train(self, name: str) -> SampleSet:
        """Open the training set; called first."""

    def test(self, name: str) -> SampleSet:
        """Open the in-distribution test set."""

    def ood(self, name: str, seed: int) -> SampleSet:
        """Open an OOD set; the seed is that of noise."""


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
        self.train = self.source.train(files.ind)
        if isinstance(self.source, PictureSource):
            self.about["preparation"] = self.source.record()
        self.test = self.source.test(test)
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
        return self.source.ood(name, seed)

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
