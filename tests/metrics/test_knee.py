"""The knee of hand-made curves."""

from __future__ import annotations

import pytest

from llmops_kernel.views.score_bench import knee

SIZES = [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize(
    ("ys", "expected"),
    [
        # Doubles up to 8, then not at all.
        ([100, 200, 400, 800, 800, 800, 800], 8),
        # Doubles up to 16, then gains 5 % a doubling.
        ([10, 20, 40, 80, 160, 168, 176], 16),
        # As above, and the largest batch is slower again: memory has run out.
        ([10, 20, 40, 80, 160, 165, 120], 16),
        # Each doubling adds as much as the one before: 4 / 6 - 15 / 63 is the largest distance.
        ([100, 200, 300, 400, 500, 600, 700], 16),
        # As the first, with a measurement at 2 that was too fast.
        ([100, 260, 400, 800, 800, 800, 800], 8),
    ],
)
def test_the_knee_is_where_the_curve_bends(ys: list[float], expected: float) -> None:
    assert knee(SIZES, ys) == expected


@pytest.mark.parametrize(
    "ys",
    [
        [float(size) for size in SIZES],  # Straight: larger batches still pay in full.
        [100.0] * 7,  # Flat.
        [100.0, 90, 80, 70, 60, 50, 40],  # Falls.
        [1.0, 4, 16, 64, 256, 1024, 4096],  # Rises ever faster.
    ],
)
def test_a_curve_without_a_bend_has_none(ys: list[float]) -> None:
    assert knee(SIZES, ys) is None


def test_two_points_have_no_knee() -> None:
    assert knee([1, 2], [1, 2]) is None
    assert knee([], []) is None


def test_the_example_of_the_paper() -> None:
    """Its Figure 2: y = -1 / (x + 0.1) + 5 on 0..1 has its knee at x = 0.22; ten points."""
    xs = [i / 9 for i in range(10)]
    assert knee(xs, [-1 / (x + 0.1) + 5 for x in xs]) == pytest.approx(2 / 9)
