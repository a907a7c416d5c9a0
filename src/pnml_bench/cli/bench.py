"""``pnml bench``: the paper's benchmark."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from pnml.backend.extras import require
from pnml.backend.files import check_writable
from pnml.cli._app import Facts
from pnml.cli._errors import Refused, if_interrupted
from pnml.cli._inputs import HEAD_HELP, HEAD_LAYER_HELP, MEAN_HELP, SIZE_HELP, STD_HELP
from pnml_bench.cli._own import Given, load_methods, names_of
from pnml_bench.cli._shared import CheckpointOption, DeviceOption, LimitOption, NewResultsOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pnml_bench.options import Options
    from pnml_bench.runner import Outcome

_OWN = "Your own network and sets"


def bench(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="The network: densenet-bc-100, resnet-34, resnet-20, wideresnet-40-2, ...; or your own, as "
            "mine.py:create, a function that returns it.",
            show_default="densenet-bc-100",
        ),
    ] = None,
    ind: Annotated[
        str | None,
        typer.Option(
            help="The in-distribution set, as `cifar10`; see `pnml data list`. Of your own network: the path of its "
            "training set.",
            show_default="cifar10",
        ),
    ] = None,
    ood: Annotated[
        str,
        typer.Option(
            help="The OOD sets with commas between: names, or paths of folders or .parquet files; `noise` for those "
            "that are drawn, `all` for the paper's."
        ),
    ] = "all",
    method: Annotated[
        str,
        typer.Option(
            help="The methods with commas between. The paper's, or `all` of them: baseline, odin, gram, oecc, energy. "
            "Ours: pnml, pnml-last (embeddings alone), pnml-paper, pnml-published (by the published arithmetic). Those "
            "of pytorch-ood, or all of them with `peers`, which adds our first three, baseline and energy: "
            "mahalanobis, rmd, vim, knn, react, ash, she, gen, kl-matching, maxlogit, pytorch-ood-pnml, "
            "mahalanobis-plus, rmd-plus, gmm, dice, vra, nnguide, scale, lts, fdbd, nci. Those given the same layers "
            "as pnml, or `layers` for the first two beside ours: knn-layers, mahalanobis-layers, nac. Your own: "
            "mine.py:Detector, a class with fit and score."
        ),
    ] = "baseline",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    results: NewResultsOption = Path("results"),
    study: Annotated[
        str | None,
        typer.Option(
            help="The study that the results belong to; --limit, --oracle and --published add to its name.",
            show_default="paper, or own for a network of your own",
        ),
    ] = None,
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
            "--keep-scores", help="Keep every sample's scores in the folder `scores` of --results, for `pnml report`."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run finished cells again.")] = False,
    test: Annotated[
        str | None, typer.Option(help="The in-distribution test set, a path like that of --ind.", rich_help_panel=_OWN)
    ] = None,
    size: Annotated[int | None, typer.Option(help=SIZE_HELP, min=1, rich_help_panel=_OWN)] = None,
    mean: Annotated[str | None, typer.Option(help=MEAN_HELP, rich_help_panel=_OWN)] = None,
    std: Annotated[str | None, typer.Option(help=STD_HELP, rich_help_panel=_OWN)] = None,
    head_layer: Annotated[
        str | None,
        typer.Option(help=HEAD_LAYER_HELP, rich_help_panel=_OWN),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="The column of texts in .parquet or .csv files; or of embeddings.", rich_help_panel=_OWN),
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(
            help=HEAD_HELP,
            exists=True,
            dir_okay=False,
            rich_help_panel=_OWN,
        ),
    ] = None,
) -> Facts:
    """Run the paper's benchmark, or your own: how well each method, alone and with pNML, tells OOD samples apart.

    A killed run continues where it stopped. Absent weights and images are reported and do not stop the run; they are
    looked for in the folders of `PNML_WEIGHTS` and `PNML_DATA`, then in the cache. The exit code is 1 if there is no
    result at all. The weights of resnet-20 for cifar10 are part of the package.

    Example: `pnml bench --model resnet-20 --ood uniform,gaussian --limit 1000`

    Example: `pnml bench --model densenet-bc-100 --ind cifar10 --ood uniform,svhn --method baseline,odin`

    Example: `pnml bench --ind cifar10 --ood cifar100,svhn,uniform --method peers`

    Example: `pnml bench --paper --oracle --published`

    Example: `pnml bench --model mine.py:create --ind photos/train --test photos/test --ood other/,noise --method
    pnml,mine.py:Detector`
    """
    require("torch", extra="bench", what="pnml bench")
    check_writable(results / "cells.csv")
    from pnml_bench.options import Options
    from pnml_bench.own.benchmark import plan_own
    from pnml_bench.protocol import paper_plan, plan
    from pnml_bench.results import OWN_STUDY, PAPER_STUDY
    from pnml_bench.runner import run
    from pnml_bench.summary import absent

    given = Given(model, ind, test, checkpoint, head, column, head_layer, size, mean, std)
    if paper and (model is not None or ind is not None or head is not None or ":" in method):
        raise typer.BadParameter(
            "--paper runs the paper's networks, sets and methods: leave --model, --ind, --head and "
            "methods of your own out"
        )
    oods = names_of(ood, "--ood")
    own = given.open(limit)
    methods, own_methods = load_methods(names_of(method, "--method"))
    options = Options(
        out=results,
        study=study if study is not None else OWN_STUDY if own is not None else PAPER_STUDY,
        device=device,
        limit=limit,
        oracle=oracle,
        published=published,
        noise_seeds=noise_seeds,
        batch_size=batch_size,
        force=force,
        checkpoint=None if own is not None else checkpoint,
        keep_scores=keep_scores,
        own=own,
        own_methods=own_methods,
        asked=given.words(ood, method) if own is not None or own_methods else (),
    )
    if own is not None:
        cells = plan_own(own, oods, methods, own_methods)
    else:
        plain = (model or "densenet-bc-100", ind or "cifar10", oods, methods, own_methods)
        cells = paper_plan() if paper else plan(*plain)
    with if_interrupted(f"finished cells are kept in {results / 'cells.csv'}; run the same command again to continue"):
        outcome = run(cells, options)
    _report(outcome, options)
    facts = _as_facts(outcome, options)
    if not facts["run"] + facts["finished_before"]:
        why = "; ".join(absent(outcome.results))
        raise Refused(f"nothing was measured: {why}", **facts)
    typer.echo(f"next, look at them: pnml report {shlex.quote(str(results))} --study {options.full_study}")
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
    measured = sum(result.scores is not None for result in outcome.results)
    return {
        "results": options.out / "cells.csv",
        "study": options.full_study,
        "cells": cells,
        "run": measured - outcome.finished_before,
        "finished_before": outcome.finished_before,
        "not_run": len(cells) - measured,
        "seconds": outcome.seconds,
    }


def _report(outcome: Outcome, options: Options) -> None:
    from pnml_bench import leaderboard
    from pnml_bench.methods import METHODS
    from pnml_bench.summary import COLUMNS, NONE, absent, accuracies, counted, notes, reversed_scores, summary, timing

    console = Console()
    tables = summary(outcome.results)
    for title, lines in tables.items():
        shown = len(COLUMNS) if any(line[3] != NONE for line in lines) else 3  # nothing of the paper to compare with
        rows = [line[:shown] for line in lines]
        console.print(_table(title, "AUROC in percent: a method alone / with pNML.", COLUMNS[:shown], rows))
    ours = [result for result in outcome.results if result.study == options.full_study]
    if any(result.method not in METHODS for result in ours):
        for board in leaderboard.leaderboard(ours):
            standings = [standing.texts for standing in board.standings]
            console.print(_table(f"Leaderboard: {board.title}", board.caption, leaderboard.COLUMNS, standings))
    said = accuracies(outcome.results) + notes(outcome.results)
    said += reversed_scores(outcome.results, options.own_methods)
    lines_of_text = [f"note: {note}" for note in said]
    lines_of_text += [f"not run: {reason}" for reason in absent(outcome.results) if tables]
    studies = dict.fromkeys(result.study for result in outcome.results)
    run = counted(outcome.results, outcome.finished_before)
    lines_of_text.append(f"{run} Results in {options.out / 'cells.csv'}, study {', '.join(studies)}.")
    if outcome.seconds:
        lines_of_text.append(timing(outcome.seconds))
    for text in lines_of_text:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(title: str, caption: str, columns: Iterable[str], lines: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*columns, title=title, caption=caption)
    for line in lines:
        table.add_row(*line)
    return table
