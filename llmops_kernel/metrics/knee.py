"""The knee of a curve that rises ever more slowly: the point after which more brings little.

Kneedle, the offline method of Satopaa, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a
Haystack: Detecting Knee Points in System Behavior" (ICDCS workshops 2011), for concave rising
curves. Two things are simpler here: no spline is fitted, because the points are few and medians
already; and of several local maxima the largest is taken, because the curve is known as a whole,
so that no sensitivity has to be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

_STRAIGHT = 0.05
"""A curve that stays this close to the straight line from its start to its top has no knee: noise
alone gives as much. Share of the range."""


def knee(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return the x of the knee; None for a curve without one, or with fewer than three points.

    `xs` must rise.
    """
    if len(xs) < 3 or max(ys) <= ys[0]:
        return None
    span_x, span_y = xs[-1] - xs[0], max(ys) - ys[0]
    above = [(y - ys[0]) / span_y - (x - xs[0]) / span_x for x, y in zip(xs, ys, strict=True)]
    best = max(range(len(xs)), key=above.__getitem__)  # Of equal ones the first: it costs less.
    return xs[best] if above[best] > _STRAIGHT else None
