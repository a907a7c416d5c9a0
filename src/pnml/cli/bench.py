"""``pnml bench``: the paper's benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from pnml.backend.extras import require
from pnml.cli._app import Facts
from pnml.cli._errors import Refused, if_interrupted
from pnml.cli._network_options import CheckpointOption, DeviceOption, IndOption, LimitOption, ModelOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pnml.bench.options import Options
    from pnml.bench.runner import Outcome


def bench(
    *,
    model: ModelOption = "densenet-bc-100",
    ind: IndOption = "cifar10",
    ood: Annotated[
        str,
        typer.Option(
            help="The OOD sets with commas between: names, or paths of folders or .parquet files; `all` for the "
            "paper's."
        ),
    ] = "all",
    method: Annotated[
        str,
        typer.Option(
            help="The methods with commas between. The paper's, or `all` of them: baseline, odin, gram, oecc, energy. "
            "Ours: pnml, pnml-last (embeddings alone), pnml-paper, pnml-published (by the published arithmetic). Those "
            "of pytorch-ood, or all of them with `peers`, which adds our first three, baseline and energy: "
            "mahalanobis, rmd, vim, knn, react, ash, she, gen, kl-matching, maxlogit, pytorch-ood-pnml. Those given "
            "the same layers as pnml, or `layers` for both beside ours: "
            "knn-layers, mahalanobis-layers."
        ),
    ] = "baseline",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    out: Annotated[
        Path, typer.Option(help="The folder for the results: rows are added to its `cells.csv`.", file_okay=False)
    ] = Path("results"),
    study: Annotated[
        str,
        typer.Option(help="The study that the results belong to; --limit, --oracle and --published add to its name."),
    ] = "paper",
    checkpoint: CheckpointOption = None,
    noise_seeds: Annotated[int, typer.Option(help="Draw noise sets this often and report the mean.")] = 1,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Images that go through the network at once; by default what suits the device.", show_default=False
        ),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle", help="Run ODIN with its ε chosen on each OOD set itself, too, as for the paper's rows."
        ),
    ] = False,
    published: Annotated[
        bool,
        typer.Option("--published", help="Compute +pNML by the arithmetic of the paper's published code, too."),
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="All cells of the paper's tables, in place of the first four options.")
    ] = False,
    keep_scores: Annotated[
        bool,
        typer.Option(
            "--keep-scores", help="Keep every sample's scores in the folder `scores` of --out, for `pnml report`."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished cells again.")] = False,
) -> Facts:
    """Run the paper's benchmark: how well each method, alone and with pNML, tells OOD images apart.

    A killed run continues where it stopped. Absent weights and images are reported and do not stop the run; they are
    looked for in the folders of `PNML_WEIGHTS` and `PNML_DATA`, then in the cache. The exit code is 1 if there is no
    result at all. The weights of resnet-20 for cifar10 are part of the package.

    Example: `pnml bench --model resnet-20 --ood uniform,gaussian --limit 1000`

    Example: `pnml bench --model densenet-bc-100 --ind cifar10 --ood uniform,svhn --method baseline,odin`

    Example: `pnml bench --ind cifar10 --ood cifar100,svhn,uniform --method peers`, which ends with a leaderboard

    Example: `pnml bench --paper --oracle --published`
    """
    require("torch", extra="bench", what="pnml bench")
    from pnml.bench.options import Options
    from pnml.bench.protocol import paper_plan, plan
    from pnml.bench.runner import run
    from pnml.bench.summary import absent

    options = Options(
        out=out,
        study=study,
        device=device,
        limit=limit,
        oracle=oracle,
        published=published,
        noise_seeds=noise_seeds,
        batch_size=batch_size,
        force=force,
        checkpoint=checkpoint,
        keep_scores=keep_scores,
    )
    cells = paper_plan() if paper else plan(model, ind, ood.split(","), method.split(","))
    with if_interrupted(f"finished cells are kept in {out / 'cells.csv'}; run the same command again to continue"):
        outcome = run(cells, options)
    _report(outcome, options)
    facts = _as_facts(outcome, options)
    if not facts["run"]:
        why = "; ".join(absent(outcome.results))
        raise Refused(f"nothing was measured: {why}", **facts)
    typer.echo(f"next, look at them: pnml report {out} --study {options.full_study}")
    return facts


def _as_facts(outcome: Outcome, options: Options) -> Facts:
    cells = [
        {
            **dict(zip(("model", "ind", "ood", "method"), result.key, strict=True)),
            "study": result.study,
            "scores": result.scores and result.scores.method,
            "scores_with_pnml": result.scores and result.scores.plus_pnml,
            "reason": result.reason,
        }
        for result in outcome.results
    ]
    run = sum(result.scores is not None for result in outcome.results)
    return {
        "results": options.out / "cells.csv",
        "study": options.full_study,
        "cells": cells,
        "run": run,
        "not_run": len(cells) - run,
        "seconds": outcome.seconds,
    }


def _report(outcome: Outcome, options: Options) -> None:
    from pnml.bench import leaderboard
    from pnml.bench.methods import METHODS
    from pnml.bench.summary import COLUMNS, absent, notes, summary, timing

    console = Console()
    tables = summary(outcome.results)
    for title, lines in tables.items():
        console.print(_table(title, "AUROC in percent: a method alone / with pNML.", COLUMNS, lines))
    ours = [result for result in outcome.results if result.study == options.full_study]
    if any(result.method not in METHODS for result in ours):
        for board in leaderboard.leaderboard(ours):
            standings = [standing.texts for standing in board.standings]
            console.print(_table(f"Leaderboard: {board.title}", board.caption, leaderboard.COLUMNS, standings))
    lines_of_text = [f"note: {note}" for note in notes(outcome.results)]
    run, total = sum(map(len, tables.values())), len(outcome.results)
    lines_of_text += [f"not run: {reason}" for reason in absent(outcome.results) if run]
    studies = dict.fromkeys(result.study for result in outcome.results)
    counted = f"{total} cells: {run} run, {total - run} not run."
    lines_of_text.append(f"{counted} Results in {options.out / 'cells.csv'}, study {', '.join(studies)}.")
    if outcome.seconds:
        lines_of_text.append(timing(outcome.seconds))
    for text in lines_of_text:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(title: str, caption: str, columns: Iterable[str], lines: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*columns, title=title, caption=caption)
    for line in lines:
        table.add_row(*line)
    return table
