"""Change one operator or number of the core at a time, and count the changes that the tests notice.

    python -m studies.checks.mutants [--count 120] [--seed 0] [--modules subspace theorem ...] [--out FILE]
    python -m studies.checks.mutants --count 9999 --processes 8 --results mutants.jsonl

Each mutant runs the quick tests of its module in a copy of the repository. One that no test notices survives: either a
test is missing, or the change makes no difference. Tests that fail without any change are named and left out.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from studies.checks.campaign_results import Clock, Results, add_options
from studies.checks.mutations import Mutant, mutants

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

ROOT = Path(__file__).resolve().parents[2]
MODULES = [*sorted((ROOT / "src/pnml/core").glob("[!_]*.py")), ROOT / "src/pnml/metrics.py"]
COPIED = ("src", "tests", "studies", "pyproject.toml", "conftest.py")
SECONDS = 600  # a mutant that takes longer has made a loop endless, and counts as killed

OTHER_TESTS = {  # beside tests/core/test_MODULE*.py
    "batch": ["detector", "result", "missing_values"],
    "beta": ["conformal", "calibration"],
    "by_class": ["limits"],
    "calibration": ["limits", "fails_closed"],
    "correlation": ["subspace"],
    "detector_state": ["detector_files", "detector"],
    "geometry": ["layers", "scatter", "detector"],
    "history": ["monitor"],
    "martingale": ["monitor"],
    "layout": ["layers", "units"],
    "model": ["detector", "layers", "label_noise"],
    "monitor_state": ["monitor"],
    "placed_result": ["result", "detector"],
    "result": ["detector"],
    "rows": ["detector_errors", "correlation", "missing_values"],
    "scaling": ["limits", "label_noise"],
    "scorer": ["precision", "layers", "detector"],
    "single_layer": ["remarks"],
    "state_checks": ["detector_files", "monitor"],
    "subspace": ["limits", "single_layer"],
    "theorem": ["limits"],
    "threshold_state": ["detector_files", "monitor"],
}


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


def run_tests(tree: str, tests: list[str], failed: Path | None = None) -> None:
    """Run tests in a copy of the repository, and end this process with their status.

    Args:
        tree: the copy.
        tests: files, or options of pytest.
        failed: where to write the names of tests that fail, all of them; they end at the first when left out.
    """
    os.chdir(tree)
    paths = [f"{tree}/src", f"{tree}/tests"]
    sys.path[:0], sys.dont_write_bytecode = paths, True
    before = os.environ.get("PYTHONPATH", "")
    os.environ |= {"PYTHONPATH": os.pathsep.join([*paths, before]), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    class Names:
        """Writes the names of tests that fail."""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and failed is not None:
                with failed.open("a", encoding="utf-8") as file:
                    file.write(f"{report.nodeid}\n")

    options = ["-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not slow"]
    os._exit(int(pytest.main([*options, *(["-x"] if failed is None else []), *tests], plugins=[Names()])))


class Runner:
    """Runs the tests of modules in copies of the repository, several at a time."""

    def __init__(self, folder: Path, processes: int, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.free = [copied(Path(tempfile.mkdtemp(dir=folder))) for _ in range(processes)]
        self.left_out: dict[Path, list[str]] = {}

    def leave_out_failing(self, modules: list[Path]) -> set[Path]:
        """Run the tests of modules without any change; name and leave out those that fail; return testable modules."""
        testable = set()
        files = {module: self.folder / f"failed-{module.stem}" for module in modules}
        same = [Mutant(module, 0, 0, "", "", module.read_text(encoding="utf-8")) for module in modules]
        for one, code in self._run(same, files):
            names = files[one.module].read_text(encoding="utf-8").split("\n")[:-1] if files[one.module].exists() else []
            self.left_out[one.module] = [f"--deselect={name}" for name in names]
            for name in names:
                print(f"left out, it fails without any change: {name}", flush=True)
            if code in {0, 1}:
                testable.add(one.module)
            else:
                print(f"left out, as pytest ends with {code}: the tests of {one.module.stem}", flush=True)
        return testable

    def survivors(self, chosen: list[Mutant]) -> Iterator[tuple[Mutant, bool]]:
        """Yield every mutant and whether no test notices it, as they end, until the time is up."""
        for mutant, code in self._run(chosen, {}):
            yield mutant, code == 0

    def _run(self, chosen: list[Mutant], failed: dict[Path, Path]) -> Iterator[tuple[Mutant, int | None]]:
        """Yield every mutant and the status of its tests, each run in a process of its own."""
        waiting, running = chosen[::-1], {}
        while (waiting or running) and self.clock.left():
            while waiting and self.free:
                mutant, tree = waiting.pop(), self.free.pop()
                (tree / mutant.module.relative_to(ROOT)).write_text(mutant.source, encoding="utf-8")
                tests = [*self.left_out.get(mutant.module, []), *tests_of(mutant.module)]
                arguments = str(tree), tests, failed.get(mutant.module)
                process = get_context("fork").Process(target=run_tests, args=arguments)
                process.start()
                running[process] = mutant, tree, time.monotonic() + SECONDS
            wait([process.sentinel for process in running], timeout=min(1.0, self.clock.left()))
            for process, (mutant, tree, deadline) in [*running.items()]:
                if process.is_alive() and time.monotonic() < deadline:
                    continue
                self._end(process, mutant, tree)
                del running[process]
                yield mutant, process.exitcode
        for process, (mutant, tree, _) in running.items():
            self._end(process, mutant, tree)

    def _end(self, process: BaseProcess, mutant: Mutant, tree: Path) -> None:
        process.kill()
        process.join()
        shutil.copy(mutant.module, tree / mutant.module.relative_to(ROOT))
        self.free.append(tree)


def report(chosen: list[Mutant], survived: list[bool], seed: int) -> str:
    """Return a table of modules, and the survivors."""
    killed = len(chosen) - sum(survived)
    share = f"{100 * killed / max(1, len(chosen)):.0f}%"
    lines = [f"{killed} of {len(chosen)} mutants killed ({share}), drawn with seed {seed}.", ""]
    lines += ["| module | mutants | killed |", "|---|---|---|"]
    for module in sorted({mutant.module for mutant in chosen}):
        fates = [fate for mutant, fate in zip(chosen, survived, strict=True) if mutant.module == module]
        lines.append(f"| {module.stem} | {len(fates)} | {len(fates) - sum(fates)} |")
    lines += ["", "Survivors:", ""]
    lines += [f"- {mutant}" for mutant, fate in zip(chosen, survived, strict=True) if fate]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modules", nargs="*", help="names of modules; all of the core and metrics when none")
    add_options(parser)
    parser.add_argument("--out", type=Path, help="a file for the report")
    given = parser.parse_args()
    modules = [module for module in MODULES if not given.modules or module.stem in given.modules]
    every = [mutant for module in modules for mutant in mutants(module)]
    chosen = random.Random(given.seed).sample(every, min(given.count, len(every)))  # noqa: S311
    results, clock = Results(given.results), Clock(given.seconds)
    todo = [mutant for mutant in chosen if mutant.name not in results]
    print(f"{len(chosen)} of {len(every)} mutants of {len(modules)} modules, {len(todo)} still to try", flush=True)
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), given.processes, clock)
        testable = runner.leave_out_failing(sorted({mutant.module for mutant in todo}))
        for mutant, survived in runner.survivors([mutant for mutant in todo if mutant.module in testable]):
            results.add(mutant.name, line=mutant.line, what=str(mutant), survived=survived)
            print("SURVIVED" if survived else "killed  ", f"line {mutant.line}", mutant, flush=True)
    tried = sorted((one for one in chosen if one.name in results), key=lambda one: (one.module, one.line))
    text = report(tried, [results.found[one.name]["survived"] for one in tried], given.seed)
    print(f"\n{text}")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(f"<!-- written by studies/checks/mutants.py -->\n# Mutants\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
