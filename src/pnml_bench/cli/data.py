"""``pnml data``: list, download and verify the image sets of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from pnml.backend.suggest import did_you_mean
from pnml.cli._app import App, Command, Facts, common_options
from pnml.cli._errors import Refused, if_interrupted
from pnml_bench.data.check import Check, check
from pnml_bench.data.fetch import fetch
from pnml_bench.data.registry import SETS
from pnml_bench.data.source import Source, data_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

data_app = typer.Typer(
    cls=App, help="List, fetch and verify the image sets.", no_args_is_help=True, rich_markup_mode="markdown"
)


@data_app.command("list", cls=Command)
@common_options
def list_sets() -> Facts:
    """List the image sets: what they are, where they were found, how to get them.

    The folders of PNML_DATA are searched, then the cache.

    Example: `PNML_DATA=~/data pnml data list`
    """
    sets = []
    for source in SETS.values():
        location = _locate(source)
        counts = ", ".join(f"{count:,} {split}" for split, count in source.counts.items())
        typer.echo(f"{source.name}: {source.description}; {counts}")
        typer.echo(f"  {location.text}")
        if location.how_to_get:
            typer.echo(f"  get it: {location.how_to_get}")
        about = {"name": source.name, "description": source.description, "images": dict(source.counts)}
        sets.append({**about, **location._asdict()})
    folders = data_folders()
    typer.echo(f"searched {', '.join(map(str, folders))}")
    return {"sets": sets, "searched": folders}


@data_app.command("fetch", cls=Command)
@common_options
def fetch_sets(names: Annotated[list[str], typer.Argument(help="Names of sets, as in `pnml data list`.")]) -> Facts:
    """Download image sets from their publishers, verify and unpack them.

    An interrupted download resumes when the command is run again. PNML_CACHE sets the folder for downloads.

    Example: `pnml data fetch cifar10 svhn isun`
    """
    with if_interrupted("what was downloaded is kept; run the same command again to continue"):
        sets = [_fetch_one(source) for source in _sources(names)]
    if failed := [one["name"] for one in sets if one["error"]]:
        raise Refused(f"{len(failed)} of {len(sets)} image sets could not be fetched: {', '.join(failed)}", sets=sets)
    return {"sets": sets}


@data_app.command("verify", cls=Command)
@common_options
def verify_sets(
    names: Annotated[list[str] | None, typer.Argument(help="Names of sets; all by default.")] = None,
) -> Facts:
    """Compare image sets with the published ones: number of images and, where known, checksums of the files.

    The exit code is 1 if a set differs, or if one given by name is absent.

    Example: `pnml data verify cifar10 svhn`
    """
    sources = _sources(names or list(SETS))
    checks: list[Check] = []
    lines = [("name", "split", "images", "checksums", "result")]
    for source in track(sources, description="reading", console=Console(stderr=True), transient=True):
        if source.generate is not None:
            lines.append((source.name, "test", f"{source.counts['test']:,}", "", "generated when loaded"))
            continue
        found = check(source)
        checks += found
        lines += map(_line, found)
    _print_columns(lines)
    failed = [one for one in checks if one.problems or (one.folder is None and names)]
    if failed:
        wrong = list(dict.fromkeys(one.name for one in failed))
        raise Refused(f"not as published, or absent: {', '.join(wrong)}", sets=checks)
    return {"sets": checks}


class _Location(NamedTuple):
    """Where a set is, and how to get it unless it is complete."""

    text: str
    folders: list[str]
    absent: list[str]
    how_to_get: str | None


def _locate(source: Source) -> _Location:
    if source.generate is not None:
        return _Location("generated when loaded", [], [], None)
    found = {split: source.find(split) for split in source.counts}
    pairs = [pair for pair in found.values() if pair is not None]
    absent = [split for split, pair in found.items() if pair is None]
    folders = sorted({str(folder) for _, folder in pairs})
    preferred = source.layouts[0]
    if not pairs:
        text = "; ".join(_incomplete(source)) or "absent"
    elif any(layout is not preferred for layout, _ in pairs):
        text = f"in {', '.join(folders)} (instead of {preferred.folder})"
    elif absent:
        text = f"in {', '.join(folders)} ({', '.join(absent)} absent)"
    else:
        return _Location(f"in {', '.join(folders)}", folders, [], None)
    return _Location(text, folders, absent, source.how_to_get())


def _incomplete(source: Source) -> Iterator[str]:
    """Yield the folders of a set that lack files, and which."""
    for layout in source.layouts:
        for base in data_folders():
            missing = {path.name: None for split in layout.required for path in layout.missing(base, split)}
            if missing and (base / layout.folder).is_dir():
                yield f"in {base / layout.folder}, which lacks {', '.join(missing)}"


def _fetch_one(source: Source) -> Facts:
    """Fetch a set, print the outcome, and return it."""
    try:
        folder = fetch(source)
    except (OSError, ValueError) as error:
        typer.secho(f"{source.name}: failed. {error}", fg=typer.colors.RED, err=True)
        return {"name": source.name, "folder": None, "error": str(error)}
    if folder is None:
        typer.echo(f"{source.name}: generated when loaded, nothing to fetch")
    else:
        typer.echo(f"{source.name}: ready in {folder}")
    return {"name": source.name, "folder": folder, "error": None}


def _sources(names: list[str]) -> list[Source]:
    unknown = [name for name in names if name not in SETS]
    if unknown:
        expected = f"expected one of {', '.join(SETS)}{did_you_mean(unknown[0], SETS)}"
        raise typer.BadParameter(f"unknown image set {unknown[0]!r}: {expected}")
    return [SETS[name] for name in names]


def _line(result: Check) -> tuple[str, str, str, str, str]:
    if result.folder is None:
        return result.name, result.split, "", "", "absent"
    checksums = "compared" if result.checksummed else "unknown"
    if result.problems:
        verdict = "; ".join(result.problems)
    elif result.checksummed:
        verdict = "as published"
    else:
        verdict = "; ".join(filter(None, ("expected number of images", result.note)))
    return result.name, result.split, f"{result.images:,}", checksums, verdict


def _print_columns(lines: list[tuple[str, str, str, str, str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(map(str.ljust, line, widths)).rstrip())
