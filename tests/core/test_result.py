"""Parts of a result, and results elsewhere: every field as the same operation on the field of the whole."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pnml import Detector, Result
from pnml.backend.arrays import to_numpy
from pnml.core.result import NotCalibratedWarning

WEIGHT = np.random.default_rng(0).normal(size=(5, 12))
TRAIN = np.random.default_rng(1).normal(size=(200, 12))
NEW = np.random.default_rng(2).normal(size=(7, 12)) * np.arange(1, 8)[:, None]
FIELDS = (
    *("logits", "prediction", "probabilities", "pnml_probabilities", "xtg", "leverage_by_layer", "regret"),
    *("p_value", "is_ood"),
)
LIBRARIES: dict[str, Any] = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jnp.asarray,
    "strict": array_api_strict.asarray,
}
MASK = np.array([True, False, False, True, True, False, False])


def result_of(rows: Any, *, calibrated: bool = True) -> Result:
    detector = Detector(WEIGHT).fit(TRAIN)
    if calibrated:
        detector.calibrate(TRAIN, false_alarm_rate=0.2, leave_one_out=True)
    return detector(rows)


@pytest.mark.parametrize("library", list(LIBRARIES))
@pytest.mark.parametrize(
    ("index", "chosen"),
    [
        (3, [3]),
        (-1, [6]),
        (np.int64(2), [2]),
        (slice(1, 5, 2), [1, 3]),
        (slice(None, None), range(7)),
        (slice(5, 2), []),
        (MASK, [0, 3, 4]),
        (MASK.tolist(), [0, 3, 4]),
        (torch.from_numpy(MASK), [0, 3, 4]),
        ([4, 1, -1], [4, 1, 6]),
        (np.array([], dtype=np.int64), []),
        ([], []),
        (torch.tensor(5), [5]),
    ],
)
def test_an_index_selects_from_every_field(library: str, index: Any, chosen: Any) -> None:
    whole = result_of(LIBRARIES[library](NEW))
    part = whole[index]
    assert isinstance(part, Result)
    assert len(part) == len(chosen)
    for name in FIELDS:
        field = getattr(part, name)
        assert type(field) is type(getattr(whole, name))
        np.testing.assert_array_equal(to_numpy(field), to_numpy(getattr(whole, name))[list(chosen)], err_msg=name)
    for name, column in whole.to_table().items():
        np.testing.assert_array_equal(part.to_table()[name], column[list(chosen)])


def test_its_own_decisions_select() -> None:
    whole = result_of(torch.from_numpy(NEW))
    assert whole.is_ood is not None
    flagged = whole[whole.is_ood]
    assert 0 < len(flagged) < 7
    assert flagged.is_ood is not None
    assert bool(flagged.is_ood.all())
    assert torch.equal(flagged[0].regret, whole.regret[whole.is_ood][:1]), "a part of a part"


@pytest.mark.parametrize("index", [7, -8, [0, 7], [-8], [True, False], "regret", 0.5, [[0]], [0.5], True])
def test_what_selects_nothing_is_an_index_error(index: Any) -> None:
    with pytest.raises(IndexError):
        _ = result_of(NEW)[index]


@pytest.mark.parametrize("index", [[0, 9], [0, -9], 9, -9])
def test_an_index_error_names_the_number_that_is_outside(index: Any) -> None:
    with pytest.raises(IndexError, match=rf"below {len(NEW)}, got {index if isinstance(index, int) else index[1]}$"):
        _ = result_of(NEW)[index]


def test_a_loop_goes_over_the_samples() -> None:
    whole = result_of(NEW)
    assert [float(one.regret[0]) for one in whole] == whole.regret.tolist()
    assert all(len(one) == 1 for one in whole)


def test_parts_are_lazy_and_read_when_the_whole_could() -> None:
    rows = NEW.copy()
    whole = result_of(rows)
    part, late = whole[:2], whole[2:]
    early = part.xtg
    rows[:] = 0
    np.testing.assert_array_equal(part.xtg, early)
    np.testing.assert_array_equal(late.regret, result_of(NEW).regret[2:])
    with pytest.raises(RuntimeError, match="overwritten since they were scored"):
        _ = late.pnml_probabilities


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fields_as_numpy_arrays(dtype: torch.dtype) -> None:
    whole = result_of(torch.from_numpy(NEW).to(dtype))
    for name in FIELDS:
        field = getattr(whole.numpy(), name)
        assert type(field) is np.ndarray
        np.testing.assert_array_equal(field, to_numpy(getattr(whole, name), None))
    assert whole.numpy().regret.dtype == np.float32
    assert type(whole.cpu().regret) is torch.Tensor


def test_fields_go_to_a_device() -> None:
    whole = result_of(torch.from_numpy(NEW))
    for name in FIELDS:
        assert getattr(whole.to("meta"), name).device.type == "meta"
        assert torch.equal(getattr(whole.to("cpu"), name), getattr(whole, name))
    assert isinstance(result_of(NEW).to("cpu").regret, np.ndarray)
    assert isinstance(result_of(NEW).cpu().regret, np.ndarray)


def test_what_is_not_calibrated_stays_so() -> None:
    whole, other = result_of(NEW, calibrated=False), result_of(NEW, calibrated=False)
    part = other[2:4]
    assert not part.is_calibrated
    for result in (whole, part):
        with pytest.warns(NotCalibratedWarning, match=r"is_ood and p_value are None: call calibrate\(held_out\)"):
            assert result.is_ood is None
        with pytest.warns(NotCalibratedWarning):
            assert result.p_value is None
    repr(result_of(NEW, calibrated=False))
    assert list(part.to_table()) == ["prediction", "probability", "xtg", "regret"]


def test_one_sample_is_described_in_words() -> None:
    whole = result_of(NEW)
    table = whole.to_table()
    for number, one in enumerate(whole):
        verdict = "out-of-distribution" if table["is_ood"][number] else "in-distribution"
        assert repr(one) == (
            f"Result(class {table['prediction'][number]} with probability {table['probability'][number]:.4g}, "
            f"regret {table['regret'][number]:.4g} nats, p-value {table['p_value'][number]:.4g}: {verdict})"
        )
    plain = repr(result_of(NEW[:1], calibrated=False))
    assert plain.startswith("Result(class ")
    assert plain.endswith(" nats)")
    assert repr(whole[:2]).startswith("Result(2 samples, ")


@pytest.mark.parametrize(("remote", "by"), [(True, None), (False, None), (True, "prediction")])
def test_on_a_gpu_decisions_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch, by: Any, *, remote: bool) -> None:
    """Unless they need the predictions, which may not be wanted."""
    detector = Detector(WEIGHT).fit(TRAIN)
    threshold = detector.calibrate(TRAIN, false_alarm_rate=0.2, leave_one_out=True, by=by)
    monkeypatch.setattr("pnml.core.detector.is_remote", lambda _: remote)
    result = detector(NEW)
    assert ("is_ood" in vars(result)) == (remote and by is None)
    np.testing.assert_array_equal(result.is_ood, threshold.is_ood(result.regret, result.prediction))
