"""``pnml train``: train a network, or tune one with outliers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pnml.backend.extras import require
from pnml.cli._app import Facts
from pnml.cli._errors import if_interrupted
from pnml_bench.cli._shared import DeviceOption, LimitOption
from pnml_bench.data import SETS, load
from pnml_bench.data.source import data_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml_bench import training
    from pnml_bench.training.settings import OutlierSet


def train(
    *,
    model: Annotated[
        str,
        typer.Option(
            help="The network: densenet-bc-100, resnet-34, wideresnet-40-2, resnet-20, resnet-18-small or vit-small."
        ),
    ],
    dataset: Annotated[
        str, typer.Option(help="The training set: cifar10, cifar100, svhn or tinyimagenet; see `pnml data list`.")
    ],
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training images; by default as in the recipe.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images that go through the network at once; by default as in the recipe.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Maximum learning rate; by default as in the recipe.")] = None,
    tune: Annotated[
        str | None, typer.Option(help="energy or oecc: tune the network of --from with --outliers.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="The network to tune: a checkpoint's name, or a weights file.")
    ] = None,
    outliers: Annotated[
        list[str] | None,
        typer.Option(
            help="The outliers for --tune, may be repeated: a set's name, a folder of images, or `transformed` for "
            "training images that are shuffled in patches, noisy, inverted, or rotated and recoloured."
        ),
    ] = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Random seed; the result is reproducible on the same machine.")] = 0,
    device: DeviceOption = "auto",
    float16: Annotated[
        bool, typer.Option("--float16", help="Round the weights to float16 at the end, before the test: half the file.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The .safetensors file to write; by default named after the recipe, in runs/."),
    ] = None,
) -> Facts:
    """Train a network with its recipe, test it, and write it with its test accuracy.

    After an interruption the same command resumes the training and ends with the same weights.

    Example: `pnml train --model resnet-20 --dataset cifar10`

    Example: `pnml train --model resnet-20 --dataset cifar10 --epochs 1 --limit 2000 --device cpu`

    Example: `pnml train --model vit-small --dataset tinyimagenet --seed 1`

    Example: `pnml train --model resnet-34 --dataset cifar10 --tune oecc --from runs/resnet-34_cifar10.safetensors
    --outliers transformed`
    """
    if (tune is None) != (start is None) or (tune is None) != (not outliers):
        raise typer.BadParameter("--tune, --from and --outliers must be used together")
    kept = "what is trained is kept as of the last saved epoch; run the same command again to continue"
    with if_interrupted(kept), _progress_bar() as report:
        require("torch", extra="torch", what="pnml train")
        from pnml_bench import training, zoo
        from pnml_bench.environment import choose_device

        recipe = training.recipe(model, dataset, tune=tune)
        overrides: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
        recipe = replace(recipe, **{name: value for name, value in overrides.items() if value is not None})
        train_set, test_set = (load(dataset, split=split, limit=limit) for split in ("train", "test"))
        side = train_set.images.shape[1]
        result = training.train(
            recipe,
            train_set,
            test_set,
            out=out or Path("runs") / f"{recipe.name}.safetensors",
            device=choose_device(device),
            seed=seed,
            start=None if start is None else zoo.load(start),
            outliers=[_outlier_set(name, side) for name in outliers or ()],
            report=report,
            float16=float16,
        )
    before = "" if result.accuracy_before is None else f", {result.accuracy_before:.2f} % before"
    typer.echo(f"{result.test_accuracy:.2f} % of {len(test_set):,} test images are classified correctly{before}")
    typer.echo(f"wrote {result.path}")
    return {"weights": result.path, "test_accuracy": result.test_accuracy, "test_images": len(test_set)}


def _outlier_set(name: str, side: int) -> OutlierSet:
    """Load a set by its name, its path or its path below a data folder, resized to ``side`` pixels."""
    if name == "transformed":
        return "transformed"
    if name in SETS:
        return load(name, split="train" if "train" in SETS[name].counts else "test", size=side)
    paths = (Path(name), *(folder / name for folder in data_folders()))
    return load(next(filter(Path.exists, paths), Path(name)), size=side)


@contextmanager
def _progress_bar() -> Iterator[Callable[[training.Progress], None]]:
    """Yield a function that shows the progress of a training on stderr: a bar, or a line an epoch in a file."""
    if not Console(stderr=True).is_terminal:
        from pnml_bench.training import log_epochs

        def log(now: training.Progress) -> None:
            if now.step == 0 and now.epoch > 1:
                typer.echo(f"resuming after epoch {now.epoch - 1} of {now.epochs}", err=True)
            log_epochs(now)

        yield log
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("loading")

        def report(now: training.Progress) -> None:
            if now.step == 0 and now.epoch > 1:
                bar.console.print(f"resuming after epoch {now.epoch - 1} of {now.epochs}")
            done = (now.epoch - 1) * now.steps + now.step
            bar.update(task, total=now.epochs * now.steps, completed=done, description=str(now))

        yield report
