"""Imports between the packages of pnml follow one direction."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parent.parent / "src"
# Each may import from those before it, the benchmark from all of the library; its other modules are one step.
FLOW = {
    "pnml": [
        "backend",
        "core",
        "metrics",
        "pytorch",
        "integrations",
        "io",
        "engines",
        "report",
        "uses",
        "demo",
        "cli",
    ],
    "pnml_bench": ["data", "zoo", "methods", "training", "(others)", "figures", "cli"],
}
MAY_IMPORT_ROOT = {"demo", "cli"}
ENTRY_POINTS = {"__init__", "__main__"}
ASKS_FOR_THE_BENCHMARK = SOURCE / "pnml" / "cli" / "_benchmark.py"


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of every import of a file below src/, those inside functions included."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def step(package: str, part: str) -> int:
    """Return the place of a part of a package in its flow."""
    flow = FLOW[package]
    return flow.index(part if part in flow else "(others)")


def objection(importer: str, name: str) -> str | None:
    """Return why ``importer``, as "pnml.core", may not import ``name``, or None where it may."""
    package, _, part = importer.partition(".")
    top, _, rest = name.partition(".")
    imported = rest.partition(".")[0]
    if package == "pnml" and top == "pnml_bench":
        return f"imports {name}, and the library stands without the benchmark"
    if top != package or imported == "_version" or part in ENTRY_POINTS:
        return None
    if package == "pnml" and imported not in FLOW["pnml"]:
        return None if part in MAY_IMPORT_ROOT else f"imports the root package ({name})"
    if step(top, imported) > step(package, part):
        return f"imports {name}, and {imported} comes after {part}"
    return None


def test_every_package_of_the_library_has_a_place_in_the_flow() -> None:
    root = SOURCE / "pnml"
    packages = {path.stem for path in root.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - ENTRY_POINTS - {"_version"} == set(FLOW["pnml"])


def test_imports_follow_the_flow() -> None:
    against = []
    for path in sorted(SOURCE.rglob("*.py")):
        package, part, *_ = path.relative_to(SOURCE).parts
        for line, name in imported_modules(path):
            if reason := objection(f"{package}.{part.removesuffix('.py')}", name):
                against.append(f"{path.relative_to(SOURCE)}:{line} {reason}")
    assert against == []


def test_one_module_of_the_library_asks_for_the_benchmark() -> None:
    naming = [path for path in SOURCE.glob("pnml/**/*.py") if '"pnml_bench' in path.read_text(encoding="utf-8")]
    assert naming == [ASKS_FOR_THE_BENCHMARK]


@pytest.mark.parametrize(
    ("importer", "name", "allowed"),
    [
        ("pnml.core", "pnml.backend.arrays.namespace", True),
        ("pnml.core", "pnml.core.theorem.regret", True),
        ("pnml.core", "numpy", True),
        ("pnml.backend", "pnml._version.__version__", True),
        ("pnml.backend", "pnml.core.theorem.regret", False),
        ("pnml.uses", "pnml_bench.zoo", False),
        ("pnml.__init__", "pnml_bench", False),
        ("pnml.demo", "pnml", True),
        ("pnml.core", "pnml", False),
        ("pnml.core", "pnml.Detector", False),
        ("pnml_bench.zoo", "pnml.Detector", True),
        ("pnml_bench.zoo", "pnml_bench.data.load", True),
        ("pnml_bench.data", "pnml_bench.zoo", False),
        ("pnml_bench.methods", "pnml_bench.runner", False),
        ("pnml_bench.figures", "pnml_bench.runner", True),
    ],
)
def test_objection_names_imports_against_the_flow(importer: str, name: str, allowed: bool) -> None:  # noqa: FBT001
    assert (objection(importer, name) is None) == allowed
