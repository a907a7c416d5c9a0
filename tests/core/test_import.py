"""The base install is light, and what is missing is named with its extra."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import pnml
from pnml.backend.extras import require

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = ["jax", "matplotlib", "onnx", "pandas", "PIL", "pyarrow", "ray", "scipy", "sklearn", "torch", "triton"]


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_import_brings_no_heavy_module() -> None:
    loaded = python(f"import sys, pnml; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded.strip() == "[]"


def without(names: list[str]) -> str:
    """Return code after which some modules cannot be imported."""
    return f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Absent())
"""


def test_numpy_alone_scores() -> None:
    code = f"""{without(HEAVY)}
import numpy as np, pnml
rows = np.eye(3)[:2]
subspace = pnml.Subspace.fit(pnml.Correlation().update(rows))
print(pnml.regret(np.array([[.5, .5]]), subspace.xtg(np.ones((1, 3)))))
"""
    assert python(code).strip() == "[0.28768207]"


def test_import_star_works_in_a_base_install() -> None:
    code = f"{without(HEAVY)}\nfrom pnml import *\nprint(sorted(name for name in globals() if name[0] not in '_'))"
    base = [
        "Correlation",
        "Detector",
        "Monitor",
        "Result",
        "SingleLayer",
        "Subspace",
        "Threshold",
        "genie",
        "metrics",
        "predictive",
        "regret",
        "report",
        "select",
    ]
    assert ast.literal_eval(python(code)) == sorted(["Absent", "sys", *base])


@pytest.mark.parametrize(
    ("absent", "missing"),
    [
        ([], set()),
        (["torch"], {"Guard", "guard", "export_onnx"}),
        (["sklearn"], {"PNMLClassifier", "PNMLOutlierDetector"}),
    ],
)
def test_import_star_gives_what_the_install_can_import(absent: list[str], missing: set[str]) -> None:
    found = ast.literal_eval(python(f"{without(absent)}\nimport pnml\nprint((pnml.__all__, dir(pnml)))"))
    exported, listed = map(set, found)
    assert listed - exported == missing
    assert {"Guard", "guard", "export_onnx", "PNMLClassifier", "PNMLOutlierDetector", "Detector"} <= listed


def test_import_star_gives_guards_and_estimators_where_their_libraries_are() -> None:
    names: dict[str, object] = {}
    exec("from pnml import *", names)  # noqa: S102
    assert names["guard"] is pnml.guard
    assert names["PNMLClassifier"] is pnml.PNMLClassifier


def test_the_acceptance_line_prints_log_four_thirds() -> None:
    printed = python("import pnml, numpy as np; print(pnml.regret(np.array([[.5,.5]]), np.array([1.0])))")
    assert float(printed.strip("[]\n ")) == pytest.approx(0.28768207245178096, abs=1e-8)


def test_require_gives_the_module() -> None:
    assert require("json", extra="torch", what="this") is sys.modules["json"]


def test_require_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pnml\.guard needs 'torch'.*pip install 'pnml\[torch\]'") as caught:
        require("torch", extra="torch", what="pnml.guard")
    assert caught.value.name == "torch"


def test_require_names_what_is_missing_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outer_module.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"needs 'no_such_module'.*pip install 'pnml\[plot\]'"):
        require("outer_module", extra="plot", what="the figure")


def test_public_modules_need_no_import_of_their_own() -> None:
    code = "import pnml; print(pnml.metrics.auroc([0.0], [1.0]), pnml.report.Report.__name__)"
    assert python(code).split() == ["100.0", "Report"]


def test_public_names() -> None:
    assert set(dir(pnml)) >= {"Correlation", "SingleLayer", "Subspace", "genie", "predictive", "regret"}
    with pytest.raises(AttributeError, match="no attribute 'regrets'"):
        _ = pnml.regrets


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "pnml", "--help"], capture_output=True, text=True, check=True)
    assert "calibrate" in done.stdout
