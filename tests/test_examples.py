"""The notebooks of examples/ run, and what they show is of the code that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import site_notebooks

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
by_notebook = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def kinds(outputs: list[dict[str, Any]]) -> list[str]:
    return [output["output_type"] for output in outputs]


@pytest.mark.slow
@by_notebook
def test_a_notebook_runs_and_shows_what_is_stored(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    notebook = site_notebooks.read(path)
    for cell, outputs in zip(notebook["cells"], site_notebooks.run(notebook, path.name), strict=True):
        assert kinds(outputs) == kinds(cell.get("outputs", []))


@by_notebook
def test_stored_outputs_are_of_the_code(path: Path) -> None:
    notebook = site_notebooks.read(path)
    assert notebook["metadata"].get("outputs_of") == site_notebooks.digest(notebook), "run make notebooks"


@by_notebook
def test_a_notebook_has_what_jupyter_expects(path: Path) -> None:
    notebook = site_notebooks.read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["cells"][0]["source"][0].startswith("# ")
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        assert cell.keys() >= (
            {"outputs", "execution_count"} if cell["cell_type"] == "code" else {"source", "metadata"}
        )


def a_notebook(*cells: str) -> dict[str, Any]:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    return {"cells": [{"cell_type": "markdown", "source": ["# Title\n", "Text"]}, *code], "metadata": {}}


def test_run_shows_what_is_printed_and_the_last_expression() -> None:
    outputs = site_notebooks.run(a_notebook("x = 2\nprint('a')\nx + 1", "x = 3", "!pnml --version"), "test")
    assert [kinds(one) for one in outputs] == [[], ["stream", "execute_result"], [], ["stream"]]
    assert [site_notebooks.text(output) for output in outputs[1]] == ["a\n", "3"]
    assert site_notebooks.text(outputs[3][0]).startswith("pnml ")


def test_run_keeps_figures() -> None:
    mpl.use("agg")
    code = "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])"
    notebook = a_notebook(code)
    notebook["cells"][1]["outputs"] = site_notebooks.run(notebook, "test")[1]
    text, pictures = site_notebooks.page(notebook, "name")
    assert text == f"# Title\nText\n\n```python\n{code}\n```\n\n![What the code draws](name-0.png)\n"
    assert pictures["name-0.png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("1 / 0", ZeroDivisionError, "division"),
        ("!ls", ValueError, "expected a command of pnml, got '!ls'"),
        ("!pnml inspect missing.safetensors", RuntimeError, "exit code 2"),
    ],
)
def test_run_raises_what_a_cell_raises(code: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        site_notebooks.run(a_notebook(code), "test")


def test_digest_is_of_code_alone() -> None:
    notebook = a_notebook("1 + 1")
    before = site_notebooks.digest(notebook)
    notebook["cells"][0]["source"] = ["another text"]
    assert site_notebooks.digest(notebook) == before
    notebook["cells"][1]["source"] = ["1 + 2"]
    assert site_notebooks.digest(notebook) != before
