"""``pnml data``: which image sets are where, fetching them, and checking them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from pnml.bench.data.check import Check, check
from pnml.bench.data.fetch import fetch
from pnml.bench.data.registry import SETS
from pnml.bench.data.source import Source, data_folders

data_app = typer.Typer(help="List, fetch and verify the image sets.", no_args_is_help=True, rich_markup_mode="markdown")


@data_app.command("list")
def list_sets() -> None:
    """List the image sets: what they are, where they were found, how to get them.

    Sets are looked for in the folders of PNML_DATA, then in the cache.

    Example: `PNML_DATA=~/data pnml data list`
    """
    table = Table("name", "what", "images", title="Image sets")
    for header in ("where", "how to get it"):
        table.add_column(header, overflow="fold")
    for source in SETS.values():
        counts = ", ".join(f"{count:,} {split}" for split, count in source.counts.items())
        where, way = _where(source)
        table.add_row(source.name, source.what, counts, where, way)
    console = Console()
    console.print(table)
    console.print(f"Looked in {escape(', '.join(str(folder) for folder in data_folders()))}")


@data_app.command("fetch")
def fetch_sets(names: Annotated[list[str], typer.Argument(help="Names of sets, as in `pnml data list`.")]) -> None:
    """Download image sets from their publishers, check and unpack them.

    An interrupted download goes on where it stopped. Sets go to the cache folder; PNML_CACHE moves it.

    Example: `pnml data fetch cifar10 svhn isun`
    """
    went_well = [_fetch_one(source) for source in _sources(names)]
    if not all(went_well):
        raise typer.Exit(1)


@data_app.command("verify")
def verify_sets(
    names: Annotated[list[str] | None, typer.Argument(help="Names of sets; all by default.")] = None,
) -> None:
    """Compare image sets with what was published: number of images and, where known, checksums of the files.

    The exit code is 1 if a set differs, or if one that was asked for by name is absent.

    Example: `pnml data verify cifar10 svhn`
    """
    table = Table("name", "split", "images", "checksums", "result", title="Image sets against what was published")
    failed = False
    sources = _sources(names or list(SETS))
    for source in track(sources, description="reading", console=Console(stderr=True), transient=True):
        if source.make is not None:
            table.add_row(source.name, "test", f"{source.counts['test']:,}", "", "drawn when loaded")
            continue
        for result in check(source):
            table.add_row(*_row(result))
            failed |= bool(result.problems) or (result.folder is None and bool(names))
    Console().print(table)
    if failed:
        raise typer.Exit(1)


def _fetch_one(source: Source) -> bool:
    """Fetch a set, say how it went, and return whether it went well."""
    console = Console()
    try:
        folder = fetch(source)
    except (OSError, ValueError) as error:
        console.print(f"[red]{source.name}: failed.[/] {escape(str(error))}")
        return False
    if folder is None:
        console.print(f"[green]{source.name}:[/] drawn when loaded, nothing to fetch")
        return True
    unverified = any(part.md5 is None for part in source.layouts[0].downloads)
    doubt = " (unverified: no checksum is known)" if unverified else ""
    console.print(f"[green]{source.name}:[/] ready in {escape(str(folder))}{doubt}")
    return True


def _sources(names: list[str]) -> list[Source]:
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise typer.BadParameter(f"no image set is called {unknown[0]!r}; the names are {', '.join(SETS)}")
    return [SETS[name] for name in names]


def _where(source: Source) -> tuple[str, str]:
    """Where a set is and, if it is not there whole, how to get it."""
    if source.make is not None:
        return "drawn when loaded", ""
    found = {split: source.find(split) for split in source.counts}
    pairs = [pair for pair in found.values() if pair is not None]
    absent = [split for split, pair in found.items() if pair is None]
    how = escape(source.how_to_get())
    if not pairs:
        return "absent", how
    where = escape(", ".join(sorted({str(folder) for _, folder in pairs})))
    best = source.layouts[0]
    if any(layout is not best for layout, _ in pairs):
        return f"{where} (in place of {best.folder})", how
    return (f"{where} ({', '.join(absent)} absent)", how) if absent else (where, "")


def _row(result: Check) -> tuple[str, str, str, str, str]:
    if result.folder is None:
        return result.name, result.split, "", "", "absent"
    checksums = "compared" if result.checksummed else "not known"
    if result.problems:
        verdict = f"[red]{escape('; '.join(result.problems))}[/]"
    elif result.checksummed:
        verdict = "[green]as published[/]"
    else:
        verdict = escape("; ".join(filter(None, ("right number of images", result.note))))
    return result.name, result.split, f"{result.images:,}", checksums, verdict
