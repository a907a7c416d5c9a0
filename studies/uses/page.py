"""The numbers of ``studies/uses/run.py``, for the pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pnml_bench.layout import markdown_table

PROBABILITY = "1 - largest probability"
SCORES = (PROBABILITY, "regret, natural", "regret, auto", "regret, paper")
STRATEGIES = ("random", "entropy", *SCORES[:1], "regret, auto", "regret, natural", "regret, paper")


def selective() -> str:
    """Return areas under risk and coverage, the excess in parentheses, and the coverage at a risk of 1 %."""
    found = _record()["selective"]
    lines = [("score", *(name.replace(" and 2000 of", ", with 2,000 of") for name in found))]
    for score in SCORES:
        cells = [
            f"{one[score]['aurc']:.2f} ({one[score]['excess_aurc']:.2f}), {one[score]['coverage_at_risk']['0.01']:.1f}%"
            for one in found.values()
        ]
        lines.append((_words(score), *cells))
    return markdown_table(lines)


def calibration() -> str:
    """Return losses and calibration errors of p and of q."""
    lines = [("", "log-loss", "Brier", "ECE, equal width", "ECE, equal mass", "accuracy")]
    for name, one in sorted(_record()["calibration"].items(), key=lambda item: item[1]["log_loss"]):
        losses = f"{one['log_loss']:.4f}", f"{one['brier']:.4f}"
        shares = [f"{one[part]:.2f}%" for part in ("ece_width", "ece_mass", "accuracy")]
        lines.append((name, *losses, *shares))
    return markdown_table(lines)


def adversarial() -> str:
    """Return the AUROC of each score for each attack."""
    attacks = {name: one for name, one in _record()["adversarial"].items() if isinstance(one, dict)}
    lines = [("", *(name.replace("fgsm", "FGSM").replace("pgd", "PGD") for name in attacks))]
    lines.append(("accuracy after the attack", *(f"{one['accuracy']:.1f}%" for one in attacks.values())))
    lines += [(_words(score), *(f"{one['auroc'][score]:.1f}" for one in attacks.values())) for score in SCORES]
    return markdown_table(lines)


def labelling() -> str:
    """Return the mean test accuracy over rounds and seeds of every strategy."""
    found = _settings()
    lines = [("", *found)]
    plans = [one["plan"] for one in found.values()]
    lines.append(("labels, first to last", *(f"{p['start']} to {p['start'] + p['k'] * p['rounds']}" for p in plans)))
    lines += [(_words(name), *(f"{one[name]['height']:.1f}" for one in found.values())) for name in STRATEGIES]
    return markdown_table(lines)


def ahead() -> str:
    """Return how far the regret is ahead of other strategies, with standard errors over seeds."""
    found = _settings()
    lines = [("points ahead, mean ± standard error", *found)]
    pairs = (("regret, auto", "random"), ("regret, auto", PROBABILITY), ("regret, natural", "random"))
    for one, other in pairs:
        gains = [setting[one]["ahead_of"][other] for setting in found.values()]
        shown = [f"{gain['mean']:+.1f} ± {gain['standard_error']:.1f}".replace("-", "−") for gain in gains]
        lines.append((f"{_words(one)}, of {_words(other)}", *shown))
    return markdown_table(lines)


def _settings() -> dict[str, Any]:
    return {name: one for name, one in _record()["acquisition"].items() if isinstance(one, dict)}


def _words(name: str) -> str:
    return name.replace("1 - ", "1 − ")


def _record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("record.json").read_text(encoding="utf-8"))
    return found
