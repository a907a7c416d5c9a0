"""Notebooks: run them, keep what they print and draw, and turn them into pages of the site.

A cell runs as in Jupyter: its last expression is shown, figures of matplotlib are drawn, ``!pnml ...`` is a command.

Example: python website/site_notebooks.py examples/images.ipynb
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import hashlib
import io
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Output = dict[str, Any]


def read(path: Path) -> Notebook:
    """Return a notebook as it is stored."""
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def digest(notebook: Notebook) -> str:
    """Return a digest of the code of a notebook, by which its outputs are known to be of this code."""
    code = [source(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def run(notebook: Notebook, name: str) -> list[list[Output]]:
    """Run the code of a notebook in the working directory, and return the outputs of each of its cells."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    _figures()  # closes those of others
    for number, cell in enumerate(notebook["cells"]):
        is_code = cell["cell_type"] == "code"
        outputs.append(_run_cell(source(cell), f"{name}, cell {number}", namespace) if is_code else [])
    return outputs


def _run_cell(code: str, name: str, namespace: dict[str, Any]) -> list[Output]:
    if code.startswith("!"):
        return _stream("".join(_run_command(line) for line in code.replace("\\\n", " ").splitlines()))
    tree = ast.parse(code, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)  # noqa: S102 - the project's own examples
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # noqa: S307
    pictures = _figures()
    is_shown = shown is not None and not pictures  # what drawing returns is not worth showing
    return [*_stream(printed.getvalue()), *([_result(shown)] if is_shown else []), *pictures]


def _run_command(line: str) -> str:
    words = shlex.split(line.removeprefix("!"))
    if words[0] != "pnml":
        raise ValueError(f"expected a command of pnml, got {line!r}")
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8")  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{line} ended with exit code {done.returncode}: {done.stderr}")
    return done.stdout


def _figures() -> list[Output]:
    """Return the open figures of pyplot as pictures, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    pyplot = sys.modules["matplotlib.pyplot"]
    found = []
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
        pyplot.close(number)
    return found


def _stream(text: str) -> list[Output]:
    return [{"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}] if text else []


def _result(value: Any) -> Output:
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    return {"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}}


def page(notebook: Notebook, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        code = source(cell)
        is_shell = code.startswith("!")
        parts.append(f"```bash\n{code.replace('!pnml', 'pnml')}\n```" if is_shell else f"```python\n{code}\n```")
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                picture = f"{name}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![What the code draws]({picture})")
            else:
                parts.append(f"```text\n{text(output).rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def text(output: Output) -> str:
    """Return an output as text."""
    return "".join(output.get("text", output.get("data", {}).get("text/plain", [])))


def main() -> None:
    """Run notebooks, each in an empty folder, and store what they print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", type=Path, nargs="+")
    for path in parser.parse_args().notebooks:
        notebook = read(path)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outputs = run(notebook, path.name)
        for cell, found in zip(notebook["cells"], outputs, strict=True):
            if cell["cell_type"] == "code":
                cell["outputs"] = found
        notebook["metadata"]["outputs_of"] = digest(notebook)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
