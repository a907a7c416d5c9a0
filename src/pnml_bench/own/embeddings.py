"""Embeddings of one's own in files, with the head that they enter: no network has to run."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from pnml.io.embeddings import open_embeddings
from pnml.io.feature_columns import check_layer_widths
from pnml.io.parquet_files import label_column, open_parquet
from pnml.pytorch.contract import Layer
from pnml_bench.data.selection import Selection
from pnml_bench.methods.protocol import MethodFailedError
from pnml_bench.methods.view import Outputs, View
from pnml_bench.own.network import linear_layer
from pnml_bench.own.samples import SampleSet, as_labels, digest_samples, limit_note
from pnml_bench.zoo import Network

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pnml_bench.data import ImageSet
    from pnml_bench.zoo.network import Tap


class HeadNetwork(Network):
    """The last layer of a network that is not there."""

    def __init__(self, weight: NDArray[Any], bias: NDArray[Any] | None) -> None:
        nn.Module.__init__(self)
        tensors = [None if part is None else torch.from_numpy(np.asarray(part, np.float32)) for part in (weight, bias)]
        self._head = linear_layer(cast("Tensor", tensors[0]), tensors[1])
        self.eval()

    @property
    def head(self) -> nn.Linear:
        """The last layer, from embeddings (n, M) to logits (n, C)."""
        return self._head

    def get_submodule(self, target: str) -> nn.Module:
        """Raise: there is no network."""
        raise MethodFailedError(f"there are embeddings alone, and no network with a layer {target!r}")

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Raise: there is no network."""
        del x, tap
        raise MethodFailedError("there are embeddings alone, and no network to run")


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings(SampleSet):
    """Embeddings in memory.

    Attributes:
        rows: the embedding of every sample, (N, M).
        features: of earlier layers, (N, features of that layer) each.
        layer_names: of these layers.
    """

    what: ClassVar[str] = "embeddings"
    rows: NDArray[Any]
    features: tuple[NDArray[Any], ...]
    layer_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Raise: there is no network for anything to go into."""
        del batch_size
        raise MethodFailedError(f"{self.name} holds embeddings: there are no inputs of a network")

    def first(self, count: int) -> Embeddings:
        """Return the set of the first ``count`` embeddings."""
        labels = None if self.labels is None else self.labels[:count]
        features = tuple(one[:count] for one in self.features)
        return replace(self, rows=self.rows[:count], features=features, labels=labels)


class StoredView(View):
    """Embeddings of a file, with the logits that the head gives."""

    def __init__(self, network: HeadNetwork, samples: Embeddings) -> None:
        super().__init__(network, cast("ImageSet", samples))  # it has what views and methods use of an image set
        self._samples = samples

    @cached_property
    def outputs(self) -> Outputs:
        """Embeddings and logits of all samples."""
        embeddings = torch.from_numpy(self._samples.rows).to(self.device, torch.float32)
        with torch.inference_mode():
            return Outputs(embeddings, self.network.head(embeddings))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers whose features the file holds."""
        return tuple(map(Layer, self._samples.layer_names))

    def features(self, layers: tuple[Layer, ...]) -> list[Tensor]:
        """Return the features of layers."""
        held = dict(zip(self.layers, self._samples.features, strict=True))
        return [torch.from_numpy(held[layer]).to(self.device, torch.float32) for layer in layers]

    def inputs(self, what: str = "a method") -> Iterator[Tensor]:
        """Raise: there is no network for anything to go into."""
        del what
        yield from self._samples.batches(1)

    def first(self, count: int) -> StoredView:
        """Return a view of the first ``count`` embeddings."""
        return StoredView(cast("HeadNetwork", self.network), self._samples.first(count))


class EmbeddingSource:
    """Opens the sets of a benchmark on embeddings.

    Args:
        n_features: that the head takes.
        columns: of the embeddings; empty for those that a file has by default.
        limit: take at most this many rows of every set.
    """

    def __init__(self, n_features: int, columns: Sequence[str], limit: int | None) -> None:
        self.n_features = n_features
        self.columns = columns
        self.limit = limit
        self._layers: tuple[tuple[str, int], ...] | None = None
        self._fitted: dict[str, Any] | None = None  # the columns of the training set

    def open(self, name: str, split: str, seed: int = 0) -> Embeddings:
        """Open a set; the training set, which comes first, decides on the layers. Nothing is drawn by the seed."""
        del seed
        path = Path(name)
        if not path.exists():
            raise FileNotFoundError(f"there is no {name!r}: expected a .npy, .npz, .csv or .parquet file of embeddings")
        layers = None if self._layers is None else [layer for layer, _ in self._layers]
        samples = open_embeddings(path, self.n_features, layers, self.columns, self._fitted)
        self._fitted = self._fitted or samples.preparation_record
        if self._layers is not None:
            check_layer_widths(path, samples.reader.layers, [width for _, width in self._layers])
        rows = Selection(split, self.limit).rows(samples.count)
        parts = [(chunk.positions, (chunk.embeddings, *chunk.features)) for chunk in samples.chunks()]
        held = [np.concatenate(column)[rows] for column in zip(*(arrays for _, arrays in parts), strict=True)]
        is_finite = np.all([np.isfinite(array).all(axis=1) for array in held], axis=0)
        if not is_finite.all():
            raise ValueError(f"row {rows[is_finite.argmin()]} of {name}, counted from 0, is not finite: repair it")
        if split == "train":
            widths = [array.shape[1] for array in held[1:]]
            self._layers = tuple(zip(samples.layer_names, widths, strict=True))
        labels = None if split == "ood" else _read_labels(path, rows)
        digest = digest_samples((("", np.ascontiguousarray(array).tobytes()) for array in held), labels)
        return Embeddings(
            name,
            split,
            labels,
            limit_note(len(rows), samples.count),
            digest,
            rows=held[0],
            features=tuple(held[1:]),
            layer_names=samples.layer_names,
        )


def digest_head(network: HeadNetwork) -> str:
    """Return a digest of a head's weight and bias."""
    head = network.head
    return hashlib.sha256(head.weight.cpu().numpy().tobytes() + head.bias.cpu().numpy().tobytes()).hexdigest()


def _read_labels(path: Path, rows: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """Return the labels of rows: the array or the column of integers with "label" in its name; None without one."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as held:
            name = next((name for name in held.files if "label" in name.lower()), None)
            return None if name is None else as_labels(path, name, list(held[name][rows]))
    if suffix == ".parquet":
        table = open_parquet(path)
        name = label_column(table.schema)
        return None if name is None else as_labels(path, name, table.take([name], rows)[name])
    return None
