"""The options for inputs and engines, shared by ``fit``, ``calibrate`` and ``score``."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pnml.core.detector import Detector
from pnml.io.embedded_images import EmbeddedImages
from pnml.io.embeddings import EmbeddingFile, open_embeddings, open_standard_input
from pnml.io.feature_columns import check_layer_widths
from pnml.io.fingerprint import fingerprint_file
from pnml.io.images import open_images
from pnml.io.model import load_model
from pnml.io.paths import PathOrUri, path_or_uri
from pnml.io.preparation import PreparationWarning, of_images, restore_preparation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pnml.cli._app import Facts
    from pnml.core.scaling import EmbeddingScale
    from pnml.io.preparation import Record
    from pnml.io.source import Samples


STANDARD = "-"
"""Standard input or output; a file of that name is ./-"""


def _parse_embeddings(text: str) -> PathOrUri:
    return STANDARD if text == STANDARD else _parse_input(text)


def parse_output(text: str) -> PathOrUri:
    """Return the path or URI to write to, or ``STANDARD``."""
    return STANDARD if text == STANDARD else path_or_uri(text)


def _parse_input(text: str) -> PathOrUri:
    path = path_or_uri(text)
    if isinstance(path, Path) and not path.exists():
        raise typer.BadParameter(f"{text!r} does not exist")
    return path


DetectorFile = Annotated[Path, typer.Argument(help="A detector written by `pnml fit`.", exists=True, dir_okay=False)]
EmbeddingsOption = Annotated[
    Any,
    typer.Option(
        "--embeddings",
        help="Embeddings, and features of earlier layers as `features.NAME`: .npy, .npz, .csv, .parquet, or a folder "
        "of .parquet files, also s3://, gs://, ...; - reads .npy, .npz or CSV from standard input.",
        parser=_parse_embeddings,
        metavar="PATH",
    ),
]
ColumnOption = Annotated[
    str | None,
    typer.Option(
        "--column",
        help="With --embeddings: the array, list column or columns of numbers to read, where the file has others; "
        "names with commas between, * for any text. A detector keeps it.",
        metavar="NAME,NAME",
    ),
]
ImagesOption = Annotated[
    Any,
    typer.Option(
        "--images",
        help="Images: a folder, or a .parquet file, also s3://, gs://, ...",
        parser=_parse_input,
        metavar="PATH",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="mine.py:create or package.module:create, a function that returns the model, or (model, transform); its "
        "file is run.",
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights", help="The model's .safetensors; by default the factory's own weights.", exists=True, dir_okay=False
    ),
]
_KEPT = "A detector keeps it: not needed where one is given."
SIZE_HELP = f"Resize images to this many pixels a side. {_KEPT}"
MEAN_HELP = f"Channel means in [0, 1], as 0.49,0.48,0.45. {_KEPT}"
STD_HELP = f"Channel standard deviations, as 0.25,0.24,0.26. {_KEPT}"
HEAD_HELP = "The last layer's weight and bias, .npz or .safetensors, where there are embeddings and no model."
HEAD_LAYER_HELP = "The name of the model's last layer, if it is not found automatically."
SizeOption = Annotated[int | None, typer.Option("--size", help=SIZE_HELP, min=1)]
MeanOption = Annotated[str | None, typer.Option("--mean", help=MEAN_HELP)]
StdOption = Annotated[str | None, typer.Option("--std", help=STD_HELP)]
BatchSizeOption = Annotated[int, typer.Option("--batch-size", help="Images that go through the model at once.", min=1)]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Stop at an image that does not decode, instead of skipping it.")
]
CheckModelOption = Annotated[
    bool,
    typer.Option(
        "--check-model/--no-check-model",
        help="Refuse a model with other weights than the detector was fitted with; its last layer must be the same in "
        "any case.",
    ),
]

Engine = Literal["plain", "ray"]
EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine", help="plain: this process; ray: all cores of this machine, or the cluster at RAY_ADDRESS."
    ),
]
CpusOption = Annotated[
    int | None, typer.Option("--cpus", help="With --engine ray on this machine: the number of cores to use.", min=1)
]

_EITHER = "give either --embeddings, or --images and the --model that embeds them"


@dataclass(frozen=True)
class Inputs:
    """The options that name the samples; :func:`with_inputs` gives them to a command."""

    embeddings: EmbeddingsOption = None
    column: ColumnOption = None
    images: ImagesOption = None
    model: ModelOption = None
    weights: WeightsOption = None
    size: SizeOption = None
    mean: MeanOption = None
    std: StdOption = None
    batch_size: BatchSizeOption = 128
    strict: StrictOption = False

    @property
    def paths(self) -> tuple[PathOrUri | None, ...]:
        """The files and folders that are read; None for those that are not."""
        return None if self.embeddings == STANDARD else self.embeddings, self.images, self.weights

    def open_embeddings(
        self, n_features: int, layers: Sequence[str] | None, fitted: Record | None = None
    ) -> EmbeddingFile:
        """Open the embeddings, which must have ``n_features`` features, and features of ``layers``, or of all.

        They are in the columns that the option names, or else in those of a detector's record.
        """
        if self.embeddings is None or self.images is not None:
            raise typer.BadParameter(_EITHER)
        if any(value is not None for value in (self.model, self.weights, self.size, self.mean, self.std)):
            raise typer.BadParameter("--model, --weights, --size, --mean and --std go with --images only")
        columns = () if self.column is None else tuple(name.strip() for name in self.column.split(","))

        def open_file(path: PathOrUri) -> EmbeddingFile:
            return open_embeddings(path, n_features, layers, columns, fitted)

        if self.embeddings == STANDARD:
            if sys.stdin is None:  # closed, as by <&-
                raise ValueError("standard input is closed: pipe the embeddings in, or give the path of a file")
            return open_standard_input(typer.get_binary_stream("stdin"), open_file)
        return open_file(self.embeddings)

    def open_images(
        self,
        head_layer: str | None = None,
        layers: str | Sequence[str] = "auto",
        embedding_scale: EmbeddingScale = "auto",
        detector: Path | None = None,
        *,
        check_model: bool = True,
    ) -> EmbeddedImages:
        """Open the images and their model; with a ``detector``, its preparation is used where no option says another.

        Options that contradict it are refused when the images are used, and with ``check_model`` a model of other
        weights than the detector was fitted with.
        """
        if self.images is None or self.model is None:
            raise typer.BadParameter(_EITHER)
        if self.column is not None:
            raise typer.BadParameter("--column goes with --embeddings only")
        mean = channels(self.mean, "--mean")
        std = channels(self.std, "--std")
        reader = open_images(self.images)
        model, transform = load_model(self.model, self.weights)
        has_options = any(value is not None for value in (self.size, self.mean, self.std))
        if transform is not None and has_options:
            raise typer.BadParameter(f"{self.model} brings its own transform: leave --size, --mean and --std out")
        from pnml.pytorch.guard import Guard

        guard = Guard(model, head=head_layer, layers=layers, embedding_scale=embedding_scale)
        loaded = None if detector is None else guard.load(detector, check_model=check_model).fitted()
        record = None if loaded is None else of_images(loaded.preparation)
        if detector is not None and record is None and transform is None and not has_options:
            message = f"{detector} does not say how images were prepared: give --size, --mean and --std as for its fit"
            warnings.warn(message, PreparationWarning, stacklevel=2)
        return EmbeddedImages(
            reader,
            self.batch_size,
            restore_preparation(record, size=self.size, mean=mean, std=std, transform=transform),
            guard,
            self.strict,
            {"factory": self.model, "weights": None if self.weights is None else fingerprint_file(self.weights)},
        )

    def open_with_detector(self, path: Path, *, check_model: bool = True) -> tuple[Samples, Detector]:
        """Open the samples and the detector for them, which must have been fitted with the images' model."""
        if self.embeddings is not None:
            detector = Detector.load(path)
            embeddings = self.open_embeddings(detector.n_features, detector.layer_names, detector.preparation)
            check_layer_widths(embeddings.path, embeddings.reader.layers, detector.feature_widths)
            return embeddings, detector
        samples = self.open_images(detector=path, check_model=check_model)
        return samples, samples.guard.fitted()


def with_inputs(command: Callable[..., Facts]) -> Callable[..., Facts]:
    """Return a command with the options of :class:`Inputs` in place of its parameter ``inputs``."""
    signature = inspect.signature(command, eval_str=True)
    options = inspect.signature(Inputs, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**values: Any) -> Facts:
        return command(inputs=Inputs(**{name: values.pop(name) for name in options}), **values)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        given = options.values() if name == "inputs" else [parameter]
        parameters += (one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in given)
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


def check_engine(engine: Engine, cpus: int | None) -> None:
    """Raise for a number of cores that would have no effect."""
    if engine == "plain" and cpus is not None:
        raise typer.BadParameter("--cpus goes with --engine ray only")


def list_skipped(skipped: Sequence[str], samples: Samples) -> None:
    """List the images that do not decode on stderr."""
    if skipped:
        typer.secho(
            f"{len(skipped):,} of {samples.count:,} images do not decode and were skipped:", fg="yellow", err=True
        )
    for name in skipped:
        typer.echo(f"  {name}", err=True)


def channels(text: str | None, option: str) -> tuple[float, ...] | None:
    """Return the numbers of an option, one for all channels or one for each; None without the option."""
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) not in {1, 3} or (option == "--std" and min(values) <= 0):
        what = "positive numbers" if option == "--std" else "numbers"
        raise typer.BadParameter(
            f"{text!r} is not one {what[:-1]} or three {what} with commas between", param_hint=option
        )
    return values
