"""Change one operator or number of the core at a time, and count the changes that the tests notice.

    python benchmarks/mutants.py [--count 120] [--seed 0] [--modules subspace theorem ...] [--out FILE]

Each mutant runs the quick tests of its module in a copy of the repository. One that no test notices survives: either a
test is missing, or the change makes no difference. The exit status is 1 if the tests fail without any change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
MODULES = [*sorted((ROOT / "src/pnml/core").glob("[!_]*.py")), ROOT / "src/pnml/metrics.py"]
COPIED = ("src", "tests", "benchmarks", "pyproject.toml", "conftest.py")
SECONDS = 600  # a mutant that takes longer has made a loop endless, and counts as killed

OTHER_TESTS = {  # beside tests/core/test_MODULE*.py
    "batch": ["detector", "result", "missing_values"],
    "beta": ["conformal", "calibration"],
    "by_class": ["limits"],
    "calibration": ["limits"],
    "correlation": ["subspace"],
    "depth": ["float32_depth"],
    "detector_state": ["detector", "depth"],
    "float32_scorer": ["float32_depth"],
    "joined": ["depth"],
    "history": ["monitor"],
    "martingale": ["monitor"],
    "model": ["detector", "depth", "label_noise"],
    "monitor_state": ["monitor"],
    "placed_result": ["result", "detector"],
    "profile": ["depth"],
    "result": ["detector"],
    "rows": ["detector_errors", "correlation", "missing_values"],
    "scaling": ["limits", "label_noise"],
    "scorer": ["depth", "detector"],
    "single_layer": ["remarks"],
    "state_checks": ["detector_schema", "monitor"],
    "subspace": ["limits", "single_layer"],
    "theorem": ["limits"],
    "threshold_state": ["detector_schema", "monitor"],
}
SPEED_ONLY = {"_SMALL", "_BLOCK", "_FEW_ROWS", "_FEW_REMOTE_ROWS", "_block_width", "_decomposing"}  # no answer changes

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module.stem}.py: `{self.before}` → `{self.after}`"


def changed(node: ast.AST) -> ast.AST | None:
    """Return the node with another operator or number, None for a node that is left alone."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in SWAPPED:
        new.ops[0] = SWAPPED[type(new.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(new, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(new.op) in SWAPPED:
        new.op = SWAPPED[type(new.op)]()  # type: ignore[assignment]
    elif isinstance(new, ast.UnaryOp):
        return new.operand
    elif isinstance(new, ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), new.test)
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        new.value += 1
    elif isinstance(new, ast.Constant) and isinstance(new.value, float):
        new.value = 2 * new.value or 1.0
    else:
        return None
    return new


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield where code stands that may be changed, as (parent, field, index): no annotations, messages or speed."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_comment", "decorator_list"}:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr | ast.AnnAssign):
                continue
            if _name_of(child) in SPEED_ONLY | {"TYPE_CHECKING", "warnings"}:
                continue
            yield node, name, index if isinstance(value, list) else None
            yield from places(child)


def _name_of(node: ast.AST) -> str:
    """Return what a statement defines, tests or calls, as far as that is one name."""
    if isinstance(node, ast.Assign):
        node = node.targets[0]
    elif isinstance(node, ast.If):
        node = node.test
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        node = node.value.func.value
    return str(getattr(node, "id", getattr(node, "name", "")))


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for parent, name, index in places(tree):
        held = getattr(parent, name)
        old = held if index is None else held[index]
        new = changed(old)
        if new is None:
            continue
        before = _context(old, parent)
        _put(parent, name, index, new)
        after = ast.unparse(ast.fix_missing_locations(new))
        yield Mutant(module, getattr(old, "lineno", 0), before, after, ast.unparse(tree))
        _put(parent, name, index, old)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _context(node: ast.AST, parent: ast.AST) -> str:
    """Return the code of a node, of a lone number with what stands around it."""
    text = ast.unparse(node)
    around = ast.unparse(parent) if isinstance(node, ast.Constant) and isinstance(parent, ast.expr) else text
    return text if around == text or "\n" in around else f"{text}` in `{around}"


def tests_of(module: Path) -> list[str]:
    """Return the tests of a module, its own first, and its doctests."""
    if module.stem == "metrics":
        return ["tests/test_metrics.py", "src/pnml/metrics.py"]
    folder = ROOT / "tests/core"
    found = sorted(folder.glob(f"test_{module.stem}*.py"), key=lambda path: len(path.name))
    found += [folder / f"test_{name}.py" for name in OTHER_TESTS.get(module.stem, [])]
    return [str(path.relative_to(ROOT)) for path in [*dict.fromkeys(found), module]]


def warm_up() -> None:
    """Import what most tests import, so that no mutant has to wait for it; nothing of pnml."""
    for name in ("array_api_strict", "jax.numpy", "mpmath", "pytest", "scipy.stats", "sklearn", "torch"):
        with suppress(ImportError):
            import_module(name)


def copied(tree: Path) -> Path:
    """Copy what the tests need into a folder."""
    for name in COPIED:
        source, target = ROOT / name, tree / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return tree


def run_tests(tree: str, tests: list[str]) -> None:
    """Run tests in a copy of the repository, and end this process with their status."""
    os.chdir(tree)
    paths = [f"{tree}/src", f"{tree}/tests"]
    sys.path[:0], sys.dont_write_bytecode = paths, True
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not slow"]
    os._exit(int(pytest.main([*options, *tests])))


def survivors(chosen: list[Mutant], folder: Path, workers: int) -> Iterator[tuple[Mutant, bool]]:
    """Yield every mutant and whether no test notices it, as they end; each runs in a process of its own."""
    free = [copied(Path(tempfile.mkdtemp(dir=folder))) for _ in range(workers)]
    waiting, running = chosen[::-1], {}
    while waiting or running:
        while waiting and free:
            mutant, tree = waiting.pop(), free.pop()
            (tree / mutant.module.relative_to(ROOT)).write_text(mutant.source, encoding="utf-8")
            process = get_context("fork").Process(target=run_tests, args=(str(tree), tests_of(mutant.module)))
            process.start()
            running[process] = mutant, tree, time.monotonic() + SECONDS
        wait([process.sentinel for process in running], timeout=1)
        for process, (mutant, tree, deadline) in [*running.items()]:
            if process.is_alive() and time.monotonic() < deadline:
                continue
            process.kill()
            process.join()
            shutil.copy(mutant.module, tree / mutant.module.relative_to(ROOT))
            free.append(tree)
            del running[process]
            yield mutant, process.exitcode == 0


def report(chosen: list[Mutant], survived: list[bool], seed: int) -> str:
    """Return a table of modules, and the survivors."""
    killed = len(chosen) - sum(survived)
    share = f"{100 * killed / len(chosen):.0f}%"
    lines = [f"{killed} of {len(chosen)} mutants killed ({share}), drawn with seed {seed}.", ""]
    lines += ["| module | mutants | killed |", "|---|---|---|"]
    for module in sorted({mutant.module for mutant in chosen}):
        fates = [fate for mutant, fate in zip(chosen, survived, strict=True) if mutant.module == module]
        lines.append(f"| {module.stem} | {len(fates)} | {len(fates) - sum(fates)} |")
    lines += ["", "Survivors:", ""]
    lines += [f"- {mutant}" for mutant, fate in zip(chosen, survived, strict=True) if fate]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modules", nargs="*", help="names of modules; all of the core and metrics when none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="a file for the report")
    options = parser.parse_args()
    modules = [module for module in MODULES if not options.modules or module.stem in options.modules]
    every = [mutant for module in modules for mutant in mutants(module)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))  # noqa: S311
    chosen.sort(key=lambda mutant: (mutant.module, mutant.line))
    print(f"{len(chosen)} of {len(every)} mutants of {len(modules)} modules", flush=True)
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        same = [Mutant(module, 0, "", "", module.read_text(encoding="utf-8")) for module in modules]
        failing = [one.module.stem for one, passed in survivors(same, Path(folder), options.workers) if not passed]
        if failing:
            print(f"the tests of {', '.join(failing)} fail without any change: repair them first")
            return 1
        found = {}
        for mutant, survived in survivors(chosen, Path(folder), options.workers):
            found[mutant] = survived
            print("SURVIVED" if survived else "killed  ", f"line {mutant.line}", mutant, flush=True)
    text = report(chosen, [found[mutant] for mutant in chosen], options.seed)
    print(f"\n{text}")
    if options.out:
        options.out.write_text(f"<!-- written by benchmarks/mutants.py -->\n# Mutants\n\n{text}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
