"""The theorem: genie, regret and pNML probabilities of a single-layer softmax network.

With ``p_i`` the trained model's probability of class ``i`` and ``t = xᵀg`` in [0, 1] how little the training set
says about the direction of ``x``::

    genie_i = p_i / (p_i + p_i^t (1 − p_i))          (Lemma 1)
    Γ       = log Σ_i genie_i                        (Theorem 2, in nats)
    q_i     = genie_i / Σ_j genie_j

Two rearrangements make this exact over the whole closed range of ``p`` and ``t``. Dividing by ``p_i^t``, the genie is
``r / (1 + v)`` with ``r = p^(1 − t)`` and ``v = r − p = r (1 − p^t)``, which is never 0/0: it is 0 at ``p = 0`` for
``t < 1``, 1/2 at ``p = 0, t = 1`` (the supremum, and the value 1/(2 − p) that every ``p`` has at ``t = 1``) and 1 at
``p = 1``. And because the probabilities sum to one, ``Γ = log1p(Σ (genie_i − p_i))`` with
``genie_i − p_i = v_i (1 − genie_i)`` free of cancellation, so that small regrets keep all their digits.

With label noise p is at hand, no power of it vanishes, and ``v = p (p^−t − 1)``, ``1 − genie = (1 − p) / (1 + v)``
save an exponential a class. ``1 − p`` may lose digits near ``p = 1``
without harm: with δ = 1 − p of the most probable class, its term is about t δ², and those of the others
t δ log(1/δ) or more.

:func:`genie`, :func:`regret` and :func:`predictive` raise ``ValueError`` for probabilities that are no numbers, lie
outside [0, 1] or do not sum to 1, and for xᵀg outside [0, 1]. Where values cannot be looked at, on a GPU without
waiting and in a traced graph, such samples get NaN: never a number that looks like an answer.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from pnml.backend.arrays import (
    Array,
    as_array,
    is_real_floating,
    is_remote,
    is_traced,
    like,
    namespace,
    precision,
    to_numpy,
    working_dtype,
)

SUM_TOLERANCE = 0.01
"""How far the sum of probabilities may be from 1: allows rounded ones, and those of half precision."""

_LOG_OF_ZERO = -1e30
"""Stands for log 0: finite, so that 0 · log 0 is 0, and low enough that any power of it vanishes."""


def genie(probabilities: Array, xtg: Array, *, log: bool = False) -> Array:
    """Return the probability each class gets from the model refitted with the sample under that label.

    Args:
        probabilities: the model's probabilities, shape (..., C); log-probabilities with ``log=True``.
        xtg: xᵀg of each sample in [0, 1], shape (...), or a single number.
        log: whether ``probabilities`` holds log-probabilities.

    Returns:
        The genie of each class, shape (..., C), of the same library, dtype and device as ``probabilities``.

    >>> import numpy as np
    >>> genie(np.array([0.5, 0.5]), 1.0)
    array([0.66666667, 0.66666667])
    """
    xp, log_p, t, dtype = _prepared(probabilities, xtg, log=log)
    return xp.astype(genies(log_p, t), dtype)


def regret(probabilities: Array, xtg: Array, *, log: bool = False, normalized: bool = False) -> Array:
    """Return the pNML regret Γ in nats: 0 for a prediction to trust, at most log C for one to distrust.

    Args:
        probabilities: the model's probabilities, shape (..., C); log-probabilities with ``log=True``.
        xtg: xᵀg of each sample in [0, 1], shape (...), or a single number.
        log: whether ``probabilities`` holds log-probabilities.
        normalized: divide by log C, so that the regret lies in [0, 1].

    Returns:
        One regret per sample, shape (...), of the same library, dtype and device as ``probabilities``.

    >>> import numpy as np
    >>> regret(np.array([[0.5, 0.5]]), np.array([1.0]))  # log(4/3)
    array([0.28768207])
    >>> float(regret(np.array([0.9, 0.1]), 0.0))
    0.0
    """
    xp, log_p, t, dtype = _prepared(probabilities, xtg, log=log)
    result = regrets(log_p, t)
    if normalized:
        result = result / math.log(max(2, log_p.shape[-1]))
    return xp.astype(result, dtype)


def predictive(probabilities: Array, xtg: Array, *, log: bool = False) -> Array:
    """Return the pNML probabilities q: the genies of all classes, normalized to sum to one.

    Args:
        probabilities: the model's probabilities, shape (..., C); log-probabilities with ``log=True``.
        xtg: xᵀg of each sample in [0, 1], shape (...), or a single number.
        log: whether ``probabilities`` holds log-probabilities.

    Returns:
        q, shape (..., C), of the same library, dtype and device as ``probabilities``.

    >>> import numpy as np
    >>> predictive(np.array([0.9, 0.1]), 1.0).round(3)
    array([0.633, 0.367])
    """
    xp, log_p, t, dtype = _prepared(probabilities, xtg, log=log)
    return xp.astype(predictives(log_p, t), dtype)


def log_softmax(logits: Array) -> Array:
    """Return the log-probabilities of logits, shape (..., C).

    >>> import numpy as np
    >>> log_softmax(np.array([1000.0, 1000.0]))
    array([-0.69314718, -0.69314718])
    """
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def noisy_log_softmax(logits: Array, share: float, *, ruled_out: float = -math.inf) -> Array:
    """Return finite logarithms of the softmax of logits (..., C), mixed with the uniform distribution.

    Args:
        logits: of the model.
        share: of labels that are random; classes that are ruled out get none of them.
        ruled_out: logits of this size or less are of classes that the model does not allow.

    >>> np.exp(noisy_log_softmax(np.log([0.9, 0.1]), 0.5)).round(3)
    array([0.7, 0.3])
    >>> noisy_log_softmax(np.array([0.0, -np.inf]), 0.5)
    array([ 0.e+00, -1.e+30])
    """
    xp = namespace(logits)
    allowed = logits > ruled_out
    log_p = log_softmax(logits)
    if share:
        count = xp.sum(xp.astype(allowed, logits.dtype), axis=-1, keepdims=True)
        log_p = xp.log((1 - share) * xp.exp(log_p) + share / count)
    return xp.where(allowed | xp.isnan(log_p), log_p, xp.full_like(log_p, _LOG_OF_ZERO))


def regrets_of_logits(logits: Array, t: Array, share: float, *, ruled_out: float | None = None) -> Array:
    """Return Γ of logits (n, C) and xᵀg (n,), for :func:`noisy_log_softmax` of the logits, without checking them.

    No class is ruled out where nobody says from which logit on.

    >>> regrets_of_logits(np.log([[0.5, 0.5]]), np.array([1.0]), 0.0)
    array([0.28768207])
    """
    all_allowed = ruled_out is None or (isinstance(logits, np.ndarray) and bool(logits.min(initial=0.0) > ruled_out))
    if not all_allowed or (share and not isinstance(logits, np.ndarray)):
        lowest = -math.inf if ruled_out is None else ruled_out
        return regrets(noisy_log_softmax(logits, share, ruled_out=lowest), t[..., None])
    if not share:
        return regrets(log_softmax(logits), t[..., None])
    # The same without temporary arrays, which would take half of the time: p stays clear of 0.
    p = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    np.exp(p, out=p)
    p *= ((1 - share) / np.add.reduce(p, axis=-1))[:, None]
    p += share / p.shape[-1]
    v = np.log(p)
    v *= -t[:, None]
    np.expm1(v, out=v)
    v *= p
    p -= 1
    p *= v
    v += 1
    p /= v
    return np.log1p(-np.add.reduce(p, axis=-1))


def regrets(log_p: Array, t: Array) -> Array:
    """Return Γ of finite log-probabilities (..., C) and xᵀg (..., 1), without checking them."""
    xp = namespace(log_p)
    ratio, v = _ratios(log_p, t)
    return xp.log1p(xp.sum(v * (1 - ratio / (1 + v)), axis=-1))


def genies(log_p: Array, t: Array) -> Array:
    """Return the genies of finite log-probabilities (..., C) and xᵀg (..., 1), without checking them."""
    ratio, v = _ratios(log_p, t)
    return ratio / (1 + v)


def predictives(log_p: Array, t: Array) -> Array:
    """Return q of finite log-probabilities (..., C) and xᵀg (..., 1), without checking them."""
    xp = namespace(log_p)
    terms = genies(log_p, t)
    return terms / xp.sum(terms, axis=-1, keepdims=True)


def _ratios(log_p: Array, t: Array) -> tuple[Array, Array]:
    """Return r = p^(1 − t) and v = r − p."""
    xp = namespace(log_p)
    ratio = xp.exp((1 - t) * log_p)
    return ratio, ratio * -xp.expm1(t * log_p)


def _prepared(probabilities: Array, xtg: Array, *, log: bool) -> tuple[Any, Array, Array, Any]:
    """Return the namespace, log p (..., C) and xᵀg (..., 1) in working precision, and the caller's dtype."""
    p = as_array(probabilities)
    xp = namespace(p)
    _check_probabilities(p)
    t = xtg if type(xtg) is type(p) else like(p, to_numpy(xtg), working_dtype(xp, p))
    _check_xtg(p, t)
    dtype, eps = p.dtype, precision(p)
    work = working_dtype(xp, p, t)
    p, t = xp.astype(p, work), xp.astype(t, work)
    in_range = _is_within(p, *_range(eps, log=log))
    known = xp.where(in_range, p, math.nan)
    sums = xp.sum(xp.exp(known) if log else known, axis=-1)
    # Rounding moves log p by ε |log p|, and the sum by ε times the entropy, which is at most log C.
    tolerance = SUM_TOLERANCE + (eps * math.log(max(1, p.shape[-1])) if log else 0.0)
    fits = in_range, _is_within(sums, 1 - tolerance, 1 + tolerance), _is_within(t, 0.0, 1.0)
    answer = _all_true(fits)
    if answer is None:
        p = xp.where((fits[1] & fits[2])[..., None], known, math.nan)
    elif not answer:
        _refuse(fits, p, sums, t, log=log)
    is_zero = p <= _LOG_OF_ZERO if log else p == 0  # false for NaN, which stays what it is
    log_p = xp.where(is_zero, _LOG_OF_ZERO, p if log else xp.log(xp.where(is_zero, 1.0, p)))
    return xp, log_p, t[..., None], dtype


def _check_probabilities(p: Array) -> None:
    if p.ndim == 0 or not is_real_floating(p):
        raise ValueError(
            f"probabilities must be a floating-point array of shape (..., classes), got shape {tuple(p.shape)} "
            f"of {p.dtype}"
        )


def _check_xtg(p: Array, t: Array) -> None:
    if t.ndim and tuple(t.shape) != tuple(p.shape[:-1]):
        raise ValueError(
            f"xtg must be one number or one per sample: shape {tuple(p.shape[:-1])} for probabilities of shape "
            f"{tuple(p.shape)}, got {tuple(t.shape)}"
        )


def _range(eps: float, *, log: bool) -> tuple[float, float]:
    """Return the smallest and the largest value of probabilities, or of their logarithms, of precision ``eps``."""
    return (-math.inf, 4 * eps) if log else (0.0, 1 + 4 * eps)


def _is_within(values: Array, low: float, high: float) -> Array:
    """Return which values lie in a range; those that are no numbers do not."""
    return (values >= low) & (values <= high)


def _all_true(answers: tuple[Array, ...]) -> bool | None:
    """Return whether all entries are true; None on a GPU, and where a graph is traced or a function transformed."""
    if is_remote(answers[0]) or is_traced():
        return None
    try:
        return all(bool(namespace(one).all(one)) for one in answers)
    except (TypeError, RuntimeError):  # what JAX and PyTorch raise when a transformation has no values to look at
        return None


def _refuse(fits: tuple[Array, Array, Array], p: Array, sums: Array, t: Array, *, log: bool) -> NoReturn:
    """Raise ``ValueError`` for the first value that does not fit."""
    in_range, sums_to_one, t_in_range = (to_numpy(one, bool) for one in fits)
    if not in_range.all():
        kind = "log-probabilities must be at most 0" if log else "probabilities must lie in [0, 1]"
        hint = "" if log else "; for log-probabilities pass log=True"
        raise ValueError(f"{kind}, got {to_numpy(p)[~in_range].flat[0]}{hint}")
    if not sums_to_one.all():
        raise ValueError(
            f"probabilities must sum to 1 over the last axis, got a sum of {to_numpy(sums)[~sums_to_one].flat[0]:.6g}: "
            f"of logits z pass their softmax, {'z - logsumexp(z)' if log else 'exp(z) / sum(exp(z))'}"
        )
    raise ValueError(f"xtg must lie in [0, 1], got {to_numpy(t)[~t_in_range].flat[0]}")
