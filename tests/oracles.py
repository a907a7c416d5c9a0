"""What tests of more than one folder compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

if TYPE_CHECKING:
    from collections.abc import Sequence

Matrix = np.ndarray[Any, Any]

NOISE = 0.005
"""The share of labels that "auto" takes to be drawn at random."""


def balanced_head(train: Matrix, weight: Matrix, bias: Matrix) -> tuple[float, Matrix]:
    """Find the length of "auto" as the root of its definition, from all training rows (N, M), and its bias.

    The head must tell all of them apart: at endless length no entropy is left.
    """
    norms = np.linalg.norm(train, axis=1, keepdims=True)
    logits = train / norms @ weight.T + bias / norms.mean()

    def above_a_quarter(length: float) -> float:
        return float(entropy(softmax(length * logits, axis=1), axis=1).mean() - np.log(len(bias)) / 4)

    length = float(brentq(above_a_quarter, 0.0, 1e5, xtol=1e-12, rtol=1e-12))
    return length, bias * length / norms.mean()


def believed(logits: Matrix, scale: str) -> Matrix:
    """Give the p (..., C) that the theorem is applied to, of the logits (..., C) at the scale's length."""
    share = NOISE if scale == "auto" else 0.0
    return np.asarray((1 - share) * softmax(logits, axis=-1) + share / logits.shape[-1])


def by_pseudo_inverse(
    weight: Matrix,
    bias: Matrix,
    train: Matrix,
    x: Matrix,
    scale: str = "auto",
    *,
    at: tuple[float, Matrix] | None = None,
) -> dict[str, Matrix]:
    """Write the method down as plainly as NumPy allows: all training rows kept, float64, no log space.

    The length and the bias are those given as ``at``, or else those of the scale.
    """
    logits = x @ weight.T + bias
    if at is None:
        at = balanced_head(train, weight, bias) if scale == "auto" else (1.0, bias)
    if scale != "natural":
        train, x = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (train, x))
    inverse = np.linalg.pinv(train, rcond=1e-7)
    h = ((x @ inverse) ** 2).sum(axis=1)
    beyond = np.linalg.norm(x - x @ inverse @ train, axis=1)
    xtg = np.where(beyond > 1e-6 * np.linalg.norm(x, axis=1), 1.0, h / (1 + h))
    p = believed(at[0] * x @ weight.T + at[1], scale)
    genie = p / (p + p ** xtg[:, None] * (1 - p))
    return {
        "logits": logits,
        "prediction": logits.argmax(axis=1),
        "probabilities": softmax(logits, axis=1),
        "pnml_probabilities": genie / genie.sum(axis=1, keepdims=True),
        "xtg": xtg,
        "regret": np.log(genie.sum(axis=1)),
    }


def about_class_means(
    weight: Matrix,
    bias: Matrix,
    train: Sequence[Matrix],
    x: Sequence[Matrix],
    *,
    at: tuple[float, Matrix] | None = None,
    labels: Matrix | None = None,
    guessed: Matrix | None = None,
    input_layer: bool = False,
) -> dict[str, Matrix]:
    """Write "auto" down as plainly: all training rows kept, matrices inverted, ridges tried one by one.

    Args:
        weight: of the last layer.
        bias: of the last layer.
        train: the training embeddings, followed by the features of earlier layers.
        x: the same of the rows to score.
        at: length and bias of the logits, those of "auto" when left out.
        labels: the classes of the training rows, the predicted ones when left out.
        guessed: the classes of the rows to score, the predicted ones when left out.
        input_layer: whether the last of the features is the input.
    """
    at = balanced_head(train[0], weight, bias) if at is None else at
    labels = (train[0] @ weight.T + bias).argmax(axis=1) if labels is None else labels
    rows, asked = (blocks(layers, input_layer=input_layer) for layers in (train, x))
    logits = at[0] * asked[0] @ weight.T + at[1]
    guessed = logits.argmax(axis=1) if guessed is None else guessed
    everyone, anyone = np.zeros(len(labels), dtype=int), np.zeros(len(guessed), dtype=int)
    h, typical = leverages_about_means(rows[0], labels, asked[0], guessed, n_classes=len(bias))
    pairs = []
    for number, (layer, of_x) in enumerate(zip(rows, asked, strict=True)):
        scaled = input_layer and number == len(train) - 1
        pairs.append(leverages_about_means(layer, everyone, of_x, anyone, n_classes=1, scaled=scaled))
    own = 0.3 * np.sqrt(h / np.median(typical)) * h / pairs[0][0]
    added = _excess(*(np.stack(part) for part in zip(*(pairs[1:] or pairs), strict=True)))
    shares = [own, *added] if pairs[1:] else [own + added[0]]
    leverage = np.sum(shares, axis=0)
    p = believed(logits, "auto")
    genie = p / (p + p ** (leverage / (1 + leverage))[:, None] * (1 - p))
    plain = x[0] @ weight.T + bias
    return {
        "logits": plain,
        "prediction": plain.argmax(axis=1),
        "probabilities": softmax(plain, axis=1),
        "pnml_probabilities": genie / genie.sum(axis=1, keepdims=True),
        "xtg": leverage / (1 + leverage),
        "leverage_by_layer": np.stack(shares, axis=1),
        "regret": np.log(genie.sum(axis=1)),
    }


def blocks(layers: Sequence[Matrix], *, input_layer: bool = False) -> list[Matrix]:
    """Give what leverages are taken of: every layer at norm 1, the input as it is, the logarithms of layers' norms."""
    last = layers[-1:] if input_layer else []
    lengths = [np.log(np.stack([np.linalg.norm(layer, axis=1) for layer in layers[1:]], axis=1))] if layers[1:] else []
    return [*map(_directions, layers), *last, *lengths]


def _excess(h: Matrix, typical: Matrix) -> Matrix:
    """Give what every layer (rows) adds to the leverages h of samples (columns), compared with left-out ones."""
    layers, k = typical.shape
    floor = 0.01 / k
    known, asked = np.log(np.maximum(typical, floor)), np.log(np.maximum(h, floor))
    middle, wide = np.median(known, axis=1)[:, None], known.std(axis=1)[:, None]
    together = (k * np.atleast_2d(np.corrcoef(known)) + layers * np.eye(layers)) / (k + layers)
    above = [np.maximum((logs - middle) / wide, 0) for logs in (known, asked)]
    forms = [z * np.linalg.solve(together, z) for z in above]
    form, mean = (np.quantile(sums, 0.9) for sums in (forms[0].sum(axis=0), above[0].mean(axis=0)))
    parts = [f / form + z / layers / mean for f, z in zip(forms, above, strict=True)]
    s, limit = parts[1].sum(axis=0), np.quantile(parts[0].sum(axis=0), 0.9)
    excess = np.maximum(s - limit, 0) / (limit - np.median(parts[0].sum(axis=0)))
    positive = np.maximum(parts[1], 0)
    return np.asarray(0.2 * excess * positive / np.maximum(positive.sum(axis=0), 0.1))


def _directions(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def leverages_about_means(
    rows: Matrix,
    labels: Matrix,
    x: Matrix,
    guessed: Matrix,
    *,
    n_classes: int,
    ridge: float | None = None,
    scaled: bool = False,
) -> tuple[Matrix, Matrix]:
    """Give the leverages of x about the means of the guessed classes, and those of training rows without each.

    The ridge is the likeliest of those that are tried when none is given.
    """
    if scaled:
        rows, x = rows / rows.std(axis=0), x / rows.std(axis=0)
    prior = rows.mean(axis=0)
    means = np.stack([np.vstack([rows[labels == c], prior]).mean(axis=0) for c in range(n_classes)])
    spread = rows - means[labels]
    within = spread.T @ spread
    others = np.bincount(labels, minlength=n_classes)[labels]  # of the class, the row replaced by that at the mean
    away = 1 + (1 + 1 / (len(rows) - 1)) / others  # without a row, the mean of its class and of all rows move away

    def left_out(ridge: float) -> Matrix:
        inverse = np.linalg.inv(within + ridge * np.eye(rows.shape[1]))
        part = np.minimum(away * np.einsum("ij,jk,ik->i", spread, inverse, spread), 1 - 1e-12)
        return np.asarray(away * part / (1 - part))

    def unlikely(ridge: float) -> float:
        return float(len(rows) * left_out(ridge).mean() + np.linalg.slogdet(within + ridge * np.eye(len(within)))[1])

    if ridge is None:
        lowest = 2.0**-32 * (len(rows) if scaled else max(float((rows**2).sum()), len(rows)))
        ridge = min(np.geomspace(lowest, 10 * np.linalg.eigvalsh(within)[-1], 16), key=unlikely)
    d = x - means[guessed]
    return np.einsum("ij,jk,ik->i", d, np.linalg.inv(within + ridge * np.eye(len(within))), d), left_out(ridge)
