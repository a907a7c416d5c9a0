"""Jobs as processes: what is ready is run, nothing twice, and what another program writes is waited for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pnml_bench.results import Result
from pnml_bench.store import ResultStore

if TYPE_CHECKING:
    from pathlib import Path

program = import_module("studies.jobs")


def test_scheduler_runs_what_is_ready_and_nothing_twice(tmp_path: Path) -> None:
    made, log = tmp_path / "made", tmp_path / "log"

    def job(name: str, code: str, needs: Path | None = None) -> Any:
        return program.Job(name, ["-c", f"open({str(log)!r}, 'a').write('{name} '); {code}"], 0, needs)

    def work() -> list[Any]:
        return [
            job("second", "pass", made),
            job("first", f"open({str(made)!r}, 'w')"),
            job("bad", "raise SystemExit(3)"),
            job("never", "pass", tmp_path / "absent"),
        ]

    for expected in ("first second bad ", "first second bad bad "):
        assert program.Scheduler(work(), tmp_path, trainings=1, benches=1).run() == ["bad", "never"]
        assert log.read_text() == expected
    assert "2 of 4 jobs done" in program.status(work(), tmp_path)


def test_results_of_all_jobs_are_collected(tmp_path: Path) -> None:
    for job, ood in (("one", "svhn"), ("two", "isun")):
        result = Result(model="resnet-20", ind="cifar10", ood=ood, method="knn", reason="not at hand")
        (tmp_path / "results" / job).mkdir(parents=True)
        ResultStore(tmp_path / "results" / job).append(result)
    (tmp_path / "all").mkdir()
    assert program.collect(tmp_path, tmp_path / "all") == 2
    assert [one.ood for one in ResultStore(tmp_path / "all").load()] == ["isun", "svhn"]
