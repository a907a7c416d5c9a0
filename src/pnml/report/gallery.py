"""The most and the least trusted samples of a set, with their images, predictions and layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.report.thumbnails import data_uri, extremes, sample_thumbnail

if TYPE_CHECKING:
    from pnml.report.model import Report, ScoredSet

_STEP, _HEIGHT = 10, 28  # of the small bars, in units of their drawing
_PIXELATED = 64  # images of at most this side are shown by their pixels


def gallery(report: Report, scored: ScoredSet) -> list[dict[str, Any]]:
    """Return the groups of the gallery, each with a heading and its samples."""
    most, least = extremes(scored.regret)
    groups = (("Least trusted", "largest regret", least), ("Most trusted", "smallest regret", most))
    return [
        {"heading": heading, "order": order, "samples": [_sample(report, scored, int(row)) for row in rows]}
        for heading, order, rows in groups
        if len(rows)
    ]


def _sample(report: Report, scored: ScoredSet, row: int) -> dict[str, Any]:
    name = f"sample {row:,}" if scored.ids is None else str(scored.ids[row])
    label = None if scored.labels is None else report.class_name(int(scored.labels[row]))
    predicted = None if scored.prediction is None else report.class_name(int(scored.prediction[row]))
    depth = None
    if scored.strangest is not None:
        depth = next(one for one in report.depths if one.column == scored.strangest[row])
    return {
        "name": name,
        "label": label,
        "prediction": predicted,
        "probability": "" if scored.probability is None else f"{100 * scored.probability[row]:.1f}%",
        "regret": float(scored.regret[row]),
        "image": _image(scored, row),
        "depth": depth,
        "shares": None if scored.leverage is None else _shares(report, scored.leverage[row]),
    }


def _image(scored: ScoredSet, row: int) -> dict[str, Any] | None:
    image = sample_thumbnail(scored, row)
    if image is None:
        return None
    height, width = image.shape[:2]
    is_small = max(height, width) <= _PIXELATED
    return {"address": data_uri(image), "width": width, "height": height, "is_small": is_small}


def _shares(report: Report, leverage: Any) -> dict[str, Any]:
    """Return small bars of the shares of a sample."""
    total = float(leverage.sum())
    bars = []
    for place, (name, column, kind) in enumerate(report.depths):
        share = float(leverage[column]) / total if total else 0.0
        top, height = f"{(1 - share) * (_HEIGHT - 2):.2f}", f"{share * (_HEIGHT - 2) + 2:.2f}"
        bars.append(
            {"kind": kind, "x": _STEP * place + 1, "y": top, "height": height, "text": f"{name} {100 * share:.0f}%"}
        )
    return {"size": f"{_STEP * len(bars)} {_HEIGHT}", "width": _STEP - 2, "bars": bars}
