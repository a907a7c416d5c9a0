"""The Beta distribution, which the realised false-alarm rate of a conformal threshold follows."""

from __future__ import annotations

import math


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of the Beta(a, b) distribution, by bisection.

    >>> round(beta_quantile(0.5, 2, 2), 12)
    0.5
    """
    low, high = 0.0, 1.0
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beta_cdf(middle, a, b) < probability else (low, middle)
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # The fraction is evaluated from the front (modified Lentz): numerators alternate between two forms.
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(1, 10_000):
        m = step // 2
        if step % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + numerator * d)
        c = 1 + numerator / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) / (a * fraction)
