"""Records of results: there and back, and what must not come back."""

from __future__ import annotations

import json
import platform
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.bench import results
from pnml.bench.results import Result, Scores, environment, load_results, save_result
from pnml.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

METRICS = Metrics(98.4, 91.5, 94.0, 97.25, 99.0, 7.5)
RUN = Result(
    model="densenet-bc-100",
    ind="cifar10",
    ood="tinyimagenet_crop",
    method="baseline",
    checkpoint="densenet-bc-100_cifar10",
    scores=Scores(METRICS, plus_pnml=replace(METRICS, auroc=99.5)),
    counts={"train": 50_000, "ind": 10_000, "ood": 10_000},
    seeds=(0, 1, 2),
    settings={"limit": None, "epsilon": 0.0014},
    seconds={"embed": 2.5},
    command="pnml bench --paper",
    versions={"python": "3.11.7"},
    device="cpu",
    date="2024-05-17T12:00:00+00:00",
    commit="0123abc",
)
ABSENT = Result(model="resnet-34", ind="svhn", ood="lsun_crop", method="odin", reason="data absent: LSUN")

percent = st.floats(0, 100)
metrics = st.builds(Metrics, percent, percent, percent, percent, percent, percent)
name = st.sampled_from(["a", "cifar10", "lsun_crop", "densenet-bc-100", "v1.5"])
json_values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.floats(-1, 1), max_size=3)
runs = st.builds(
    Result,
    model=name,
    ind=name,
    ood=name,
    method=name,
    scores=st.builds(Scores, metrics, st.none() | metrics),
    seeds=st.lists(st.integers(0, 2**32), max_size=3).map(tuple),
    settings=st.dictionaries(st.text(max_size=9), json_values, max_size=3),
    seconds=st.dictionaries(st.text(max_size=9), st.floats(0, 1e9), max_size=2),
    command=st.text(max_size=20),
    commit=st.none() | st.text(max_size=20),
)


@settings(deadline=None, max_examples=50)
@given(runs)
def test_a_record_comes_back_as_it_was(result: Result) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_result(result, folder)
        assert load_results(folder) == [result]


def test_a_folder_holds_one_result_per_key(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    path = save_result(RUN, folder)
    save_result(ABSENT, folder)
    save_result(replace(RUN, device="cuda"), folder)
    (folder / "speed.json").write_text("not ours")
    assert path.name == "densenet-bc-100__cifar10__tinyimagenet_crop__baseline.json"
    assert load_results(folder) == [replace(RUN, device="cuda"), ABSENT]
    assert len(list(folder.iterdir())) == 3


def test_the_record_on_disk(tmp_path: Path) -> None:
    run = json.loads(save_result(RUN, tmp_path).read_text())
    assert (run["format"], run["status"], run["reason"]) == (1, "run", None)
    assert run["scores"]["plus_pnml"]["auroc"] == 99.5
    assert run["scores"]["method"]["tnr_at_tpr95"] == 91.5
    absent = json.loads(save_result(ABSENT, tmp_path).read_text())
    assert (absent["status"], absent["reason"], absent["scores"]) == ("not run", "data absent: LSUN", None)


def test_a_number_that_json_cannot_hold_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save_result(replace(RUN, settings={"epsilon": float("nan")}), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["", "../up", "two__parts", "Upper", "a b", "_a", "a/b"])
def test_names_that_make_no_file_name_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"ood is .*lower-case"):
        replace(ABSENT, ood=wrong)


def test_scores_and_reason_exclude_each_other() -> None:
    for wrong in ({"reason": "but it was"}, {"scores": None}, {"scores": None, "reason": ""}):
        with pytest.raises(ValueError, match="scores of a run, or the reason"):
            replace(RUN, **wrong)


def change(**entries: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda record: {**record, **entries}


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda record: {key: value for key, value in record.items() if key != name}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: [], "expected an object, found list"),
        (change(format=2), "format is 2, this version of pnml reads format 1"),
        (without("format"), "format is None"),
        (without("ind"), "entry 'ind' is missing"),
        (change(colour="red"), "entry 'colour' is unknown"),
        (change(counts=[1]), r"'counts' is \[1\], expected dict"),
        (change(checkpoint=1), "'checkpoint' is 1, expected str or NoneType"),
        (change(scores={}), "'scores' has the entries"),
        (change(scores={"method": {"auroc": 1}, "plus_pnml": None}), "a score is {'auroc': 1}"),
        (change(scores={"method": None, "plus_pnml": None}), "a score is None"),
        (change(scores={"method": {**vars(METRICS), "auroc": 101}, "plus_pnml": None}), "auroc is 101"),
        (change(scores={"method": {**vars(METRICS), "auroc": "9"}, "plus_pnml": None}), "is not a result"),
        (change(scores=None), "scores of a run, or the reason"),
        (change(status="not run"), "status is 'not run' but its scores say 'run'"),
        (change(ood="svhn"), "belongs in densenet-bc-100__cifar10__svhn__baseline.json"),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, damage: Callable[[Any], Any], message: str) -> None:
    path = save_result(RUN, tmp_path)
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=message) as caught:
        load_results(tmp_path)
    assert str(path) in str(caught.value)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    path = save_result(RUN, tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"baseline\.json is not a result"):
        load_results(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*pnml bench"):
        load_results(tmp_path / "nowhere")


def test_environment_names_no_host_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment()
    assert found["python"] == platform.python_version()
    assert {"pnml", "numpy", "platform", "cpu"} <= found.keys()
    assert platform.node() not in found.values()
    assert not any("/home" in value or "/tmp" in value for value in found.values())  # noqa: S108
    monkeypatch.setattr(results, "find_spec", lambda _: None)
    assert "torch" not in environment()


def test_environment_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert environment()["gpu"] == "a GPU"
    assert environment()["torch"] == torch.__version__


def test_cpu_name_comes_from_where_the_system_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(results, "_CPUINFO", cpuinfo)
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert environment()["cpu"] == platform.machine()
    cpuinfo.write_text("processor : 0\n")
    assert environment()["cpu"] == platform.machine()
    cpuinfo.write_text("processor : 0\nmodel name : Fast One\nmodel name : Fast One\n")
    assert environment()["cpu"] == "Fast One"
