"""Guard hundreds of models of torchvision, timm and transformers, and some of our own; print every broken promise.

    python -m studies.campaign.run --only "Bert|resnet" --quick

Models are small, have random weights, and run in float64, where rounding hides nothing. One that the guard refuses is
listed with the line that its error tells to type. ``--quick`` leaves out false alarms. The exit code is 1 if a promise
is broken.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

import pnml
from studies.campaign.models import SOURCES, LeftOutError
from tests.pytorch.architectures import call, chosen, logits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from studies.campaign.models import Case

TOLERANCE = 1e-6
RATE = 0.1
"""The false alarm rate that is promised."""


def difference(left: Tensor, right: Tensor) -> float:
    return float(((left - right).abs() / right.abs().clamp(min=1e-300)).max())


def violations(case: Case, alarms: list[int] | None) -> Iterator[str]:
    """Yield what is wrong with a guard of the model; add the number of false alarms of 200 samples to the list."""
    model, batch = case.model.double().eval(), case.batch(8, 2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        guard = pnml.guard(model).fit([case.batch(16, 0), case.batch(16, 1)], progress=False)
    is_warned = any(one.category.__name__ == "UnstableModelWarning" for one in said)
    result, answer = call(guard, batch), logits_of(call(model, batch))
    if not torch.equal(result.prediction, answer.argmax(dim=1)):
        yield "predictions are not the model's"
    are_probabilities = bool(((answer >= 0) & (answer <= 1)).all())
    probabilities = answer if are_probabilities else answer.softmax(dim=1)
    if not torch.equal(result.logits, answer) and difference(result.probabilities, probabilities) > TOLERANCE:
        yield "logits, or probabilities, are not the model's"
    order, alone = torch.randperm(8, generator=torch.Generator().manual_seed(0)), torch.arange(8)[:, None]
    forms = {"another order": (batch, [order]), "alone": (batch, alone)}
    if case.pad is not None:
        forms["padded"] = (case.pad(batch), [alone.flatten()])
    for what, (form, parts) in forms.items():
        rows = torch.cat(list(parts))
        worst = difference(torch.cat([call(guard, chosen(form, part)).regret for part in parts]), result.regret[rows])
        answers = torch.cat([logits_of(call(model, chosen(form, part))) for part in parts])
        change = float((answers - answer[rows]).abs().max() / answer.abs().max())
        if change > TOLERANCE and not is_warned:
            yield f"{what}: the model's answers change by {change:.1e}, and no warning said so"
        elif change <= TOLERANCE and not worst <= TOLERANCE:
            yield f"{what}: {worst:.1e}"
    with tempfile.TemporaryDirectory() as folder:
        guard.save(f"{folder}/detector")
        loaded = pnml.guard(model).load(f"{folder}/detector")
    if (worst := difference(call(loaded, batch).regret, result.regret)) > TOLERANCE:
        yield f"loaded: {worst:.1e}"
    if alarms is not None:
        guard.calibrate([case.batch(20, seed) for seed in range(100, 110)], false_alarm_rate=RATE, progress=False)
        alarms.append(sum(int(call(guard, case.batch(20, seed)).is_ood.sum()) for seed in range(200, 210)))
    yield from violations_of_threads(guard, batch, result.regret)
    yield from violations_of_precision(guard, batch)


def violations_of_threads(guard: pnml.Guard, batch: Any, regret: Tensor) -> Iterator[str]:
    """Yield what goes wrong where four threads score with a model that was left in train mode."""
    before = {name: buffer.clone() for name, buffer in guard.model.named_buffers()}
    guard.model.train()
    with ThreadPoolExecutor(4) as pool:
        regrets = list(pool.map(lambda _: call(guard, batch).regret, range(8)))
    if (worst := max(difference(one, regret) for one in regrets)) > TOLERANCE:
        yield f"threads: {worst:.1e}"
    if any(not torch.equal(before[name], buffer) for name, buffer in guard.model.named_buffers()):
        yield "threads: buffers were overwritten"
    guard.model.eval()


def violations_of_precision(guard: pnml.Guard, batch: Any) -> Iterator[str]:
    """Yield what is wrong where a model that was fitted in float64 is served in bfloat16."""
    guard.model.bfloat16()
    parts = batch if isinstance(batch, dict) else {"": batch}
    parts = {name: x.bfloat16() if x.is_floating_point() else x for name, x in parts.items()}
    low = parts if isinstance(batch, dict) else parts[""]
    try:
        call(guard.model, low)
    except RuntimeError:  # the model itself does not run so
        return
    try:
        call(guard, low)
    except ValueError as error:
        if "bfloat16" not in str(error):
            yield f"bfloat16: {error}"
    else:
        yield "bfloat16 is scored by a fit in float64"


def judge(build: Callable[[], Case], alarms: list[int] | None) -> tuple[str, str]:
    """Return whether the promises are kept for a model, and what to say about it."""
    try:
        broken = list(violations(build(), alarms))
    except LeftOutError as error:
        return "left out", str(error)
    except Exception as error:  # noqa: BLE001  # each is a finding
        line = re.search(r"pnml\.guard\(.*|guards = .*", str(error))
        about = f"{type(error).__name__}: {error}".split("\n")[0]
        is_refused = isinstance(error, ValueError) and line is not None
        return ("refused", f"{about} -> {line.group()}") if is_refused else ("broken", about)
    return "broken" if broken else "kept", "; ".join(broken)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="a regular expression of the names")
    parser.add_argument("--quick", action="store_true", help="leave out false alarms")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    counts = {"kept": 0, "broken": 0, "refused": 0, "left out": 0}
    alarms: list[int] = []
    for source in SOURCES:
        for name, build in source():
            if re.search(options.only, name):
                state, about = judge(build, None if options.quick else alarms)
                counts[state] += 1
                print(f"{state:8} {name}  {about[:300]}", flush=True)
    print(counts)
    if alarms:
        share = sum(alarms) / (200 * len(alarms))
        sigma = (2 * RATE * (1 - RATE) / (200 * len(alarms))) ** 0.5  # of as many to calibrate on as to score
        print(f"false alarms: {share:.4f} of the samples of {len(alarms)} models, promised {RATE}, sigma {sigma:.4f}")
        counts["broken"] += abs(share - RATE) > 3 * sigma
    sys.exit(counts["broken"] > 0)


if __name__ == "__main__":
    main()
