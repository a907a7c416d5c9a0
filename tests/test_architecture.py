"""Imports between the packages of pnml follow one direction."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parent.parent / "src" / "pnml"
# Each may import from those before it.
FLOW = [
    "backend",
    "core",
    "metrics",
    "pytorch",
    "integrations",
    "io",
    "engines",
    "report",
    "bench",
    "uses",
    "demo",
    "cli",
]
MAY_IMPORT_ROOT = {"bench", "demo", "cli"}
ENTRY_POINTS = {"__init__", "__main__"}


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of every import of a file below src/, those inside functions included."""
    package = path.relative_to(SOURCE.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def objection(importer: str, name: str) -> str | None:
    """Return why a module of package ``importer`` may not import ``name``, or None where it may."""
    top, _, rest = name.partition(".")
    imported = rest.partition(".")[0]
    if top != "pnml" or imported == "_version" or importer in ENTRY_POINTS:
        return None
    if imported not in FLOW:
        return None if importer in MAY_IMPORT_ROOT else f"imports the root package ({name})"
    if FLOW.index(imported) > FLOW.index(importer):
        return f"imports {name}, and {imported} comes after {importer}"
    return None


def test_every_package_has_a_place_in_the_flow() -> None:
    packages = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - ENTRY_POINTS - {"_version"} == set(FLOW)


def test_imports_follow_the_flow() -> None:
    against = []
    for path in sorted(SOURCE.rglob("*.py")):
        importer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for line, name in imported_modules(path):
            if reason := objection(importer, name):
                against.append(f"{path.relative_to(SOURCE)}:{line} {reason}")
    assert against == []


@pytest.mark.parametrize(
    ("importer", "name", "allowed"),
    [
        ("core", "pnml.backend.arrays.namespace", True),
        ("core", "pnml.core.theorem.regret", True),
        ("core", "numpy", True),
        ("backend", "pnml._version.__version__", True),
        ("backend", "pnml.core.theorem.regret", False),
        ("io", "pnml.bench.data.folder", False),
        ("uses", "pnml.bench.zoo", True),
        ("demo", "pnml", True),
        ("core", "pnml", False),
        ("core", "pnml.Detector", False),
    ],
)
def test_objection_names_imports_against_the_flow(importer: str, name: str, allowed: bool) -> None:  # noqa: FBT001
    assert (objection(importer, name) is None) == allowed
