"""Every Python snippet of the README and the documents runs, in the order a reader meets them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import pnml

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

A_MODEL_AND_LOADERS = """
import torch

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
images = torch.rand(100, 3, 4, 4)
train_set, val_set = (torch.utils.data.TensorDataset(torch.rand(100, 3, 4, 4)) for _ in range(2))
train_loader, val_loader = (torch.utils.data.DataLoader(data, batch_size=20) for data in (train_set, val_set))
"""

_BLOCK = re.compile(
    r"(?:^<!--\s*not run(?P<reason>(?:(?!-->).)*)-->\s*\n)?^```python[^\n]*\n(?P<code>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    code: str
    reason_not_to_run: str | None


def python_blocks(text: str) -> list[Block]:
    """Find the fenced Python blocks; a comment ``<!-- not run: reason -->`` on the line before one excuses it."""
    blocks = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        reason = match["reason"]
        if reason is not None and not reason.strip(": \n"):
            raise ValueError(f"line {line}: write why the block is not run, as <!-- not run: reason -->")
        blocks.append(Block(line, match["code"], reason))
    if len(blocks) != text.count("```python"):
        raise ValueError(f"only {len(blocks)} of {text.count('```python')} Python blocks are closed and unindented")
    return blocks


def run_blocks(text: str, filename: str, before: str = "") -> dict[str, Any]:
    """Run the blocks after ``before`` in one namespace, with the page's own line numbers in tracebacks.

    A block that starts with the comment ``# name.py`` is also written to that file, for later blocks to import.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(before, namespace)  # noqa: S102
    for block in python_blocks(text):
        if block.reason_not_to_run is None:
            if name := re.match(r"# (\w+\.py)\n", block.code):
                Path(name[1]).write_text(block.code, encoding="utf-8")
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, filename, "exec"), namespace)  # noqa: S102  # the project's own documents
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name == "deployment.md" and torch.__version__ < "2.11":
        pytest.skip("its ONNX export needs PyTorch 2.11")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = A_MODEL_AND_LOADERS if page.name == "README.md" else ""
    run_blocks(page.read_text(encoding="utf-8"), str(page), before)


def test_the_script_for_several_processes_runs(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "deployment.md").read_text(encoding="utf-8")
    script = re.search(r"cat > fit_guard.py <<'EOF'\n(.*?)^EOF$", guide, re.MULTILINE | re.DOTALL)
    assert script is not None
    (tmp_path / "fit_guard.py").write_text(script[1], encoding="utf-8")
    (tmp_path / "mine.py").write_text(A_MODEL_AND_LOADERS, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "fit_guard.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(torchrun, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    detector = pnml.Detector.load(tmp_path / "detector.safetensors")
    assert detector.count == 100
    assert detector.threshold is not None


PAGE = """\
A page.

```python
first = 1
```

<!-- not run: a command -->
```bash
exit 1
```

<!-- not run: needs a network -->
```python
first = 2
```

<!-- a remark -->
```python
second = first + 1
```
"""


def test_blocks_share_a_namespace_and_the_excused_are_left_out() -> None:
    assert [block.line for block in python_blocks(PAGE)] == [4, 14, 19]
    namespace = run_blocks(PAGE, "page.md")
    assert (namespace["first"], namespace["second"]) == (1, 2)


@pytest.mark.parametrize("comment", ["<!-- not run -->", "<!-- not run: -->"])
def test_an_excuse_needs_a_reason(comment: str) -> None:
    with pytest.raises(ValueError, match="line 14: write why"):
        python_blocks(PAGE.replace("<!-- not run: needs a network -->", comment))


@pytest.mark.parametrize("page", ["- item\n  ```python\n  x = 1\n  ```\n", "```python\nx = 1\n"])
def test_no_block_goes_unnoticed(page: str) -> None:
    with pytest.raises(ValueError, match="only 0 of 1 Python blocks"):
        python_blocks(page)


def test_a_failing_block_is_named_by_its_line_in_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run_blocks(PAGE.replace("first + 1", "1 / 0"), "page.md")
    assert failure.traceback[-1].lineno == 18  # counted from 0
    assert str(failure.traceback[-1].path).endswith("page.md")
