"""The oldest versions that are tested are those that pyproject.toml allows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Of developers; no test runs with the oldest of them.
TOOLS = {"mkdocs-material", "mkdocstrings-python", "mypy", "playwright", "pytest-cov", "ruff"}


def numbers(version: str) -> list[int]:
    """Return a version as numbers, without the zeros at its end."""
    return [int(part) for part in re.sub(r"(\.0)+$", "", version).split(".")]


def test_every_lower_bound_is_the_version_of_make_test_oldest() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = project[project.index("\ndependencies = ") : project.index("[project.scripts]")]
    bounds = dict(re.findall(r'"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)"', required))
    pinned = dict(re.findall(r"^([\w.-]+)==([\d.]+)$", (ROOT / "constraints-oldest.txt").read_text(), re.MULTILINE))
    assert {"numpy", "array-api-compat", "torch", "scikit-learn", "ray"} <= bounds.keys()
    assert bounds.keys() - TOOLS <= pinned.keys()
    for name in bounds.keys() - TOOLS:
        assert numbers(pinned[name]) == numbers(bounds[name]), name


def test_every_requirement_has_a_lower_bound() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = project[project.index("\ndependencies = ") : project.index("[project.scripts]")]
    names = set(re.findall(r'"([\w.-]+)(?:\[[\w,]+\])?(?:[<>=!~][^"]*)?"', required)) - {"pnml"}
    bounded = set(re.findall(r'"([\w.-]+)(?:\[[\w,]+\])?>=[\d.]+"', required))
    assert names == bounded
