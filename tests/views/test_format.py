from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from llmops_kernel.views import format as fmt

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (fmt.seconds, None, "–"),
        (fmt.seconds, NAN, "–"),
        (fmt.seconds, -1.0, "0.0 s"),
        (fmt.seconds, 0.0, "0 ms"),
        (fmt.seconds, 0.0994, "99 ms"),
        (fmt.seconds, 0.0996, "0.1 s"),
        (fmt.seconds, 59.94, "59.9 s"),
        (fmt.seconds, 59.96, "1 min 00 s"),
        (fmt.seconds, 200, "3 min 20 s"),
        (fmt.seconds, 3599.6, "1 h 00 min"),
        (fmt.seconds, 7500, "2 h 05 min"),
        (fmt.seconds, 3 * 86400 + 4 * 3600, "3 d 4 h"),
        (fmt.step_time, None, "–"),
        (fmt.step_time, 0.0488, "48.8 ms"),
        (fmt.step_time, 0.9996, "1.00 s"),
        (fmt.step_time, 12.34, "12.3 s"),
        (fmt.step_time, 75, "1 min 15 s"),
        (fmt.count, None, "–"),
        (fmt.count, 99_999, "99,999"),
        (fmt.count, 134_515_008, "135 M"),
        (fmt.count, 1_230_000, "1.23 M"),
        (fmt.rate, INF, "–"),
        (fmt.rate, 0.854, "0.85"),
        (fmt.rate, 17587.2, "17,587"),
        (fmt.flops, 1.2e12, "1.20 TFLOPS"),
        (fmt.flops, 9.89e14, "989 TFLOPS"),
        (fmt.flops, None, "–"),
        (fmt.byte_size, 0, "0 B"),
        (fmt.byte_size, 512, "512 B"),
        (fmt.byte_size, 1024**2 - 1, "1.00 MiB"),
        (fmt.byte_size, int(1.5 * 2**30), "1.50 GiB"),
        (fmt.byte_size, None, "–"),
        (fmt.percent, 0.0, "0 %"),
        (fmt.percent, 0.412, "41.2 %"),
        (fmt.percent, 0.000831, "0.083 %"),
        (fmt.percent, 1.0, "100.0 %"),
        (fmt.percent, None, "–"),
        (fmt.loss, 1.23456, "1.2346"),
        (fmt.loss, 0.00012, "1.20e-04"),
        (fmt.loss, 0.0, "0.0000"),
        (fmt.loss, NAN, "NaN"),
        (fmt.loss, INF, "∞"),
        (fmt.loss, None, "–"),
        (fmt.number, 0.80000001, "0.8"),
        (fmt.number, NAN, "–"),
        (fmt.exponent, 2e-4, "2.00e-04"),
    ],
)
def test_numbers_in_words(function: Callable[[Any], str], value: float | None, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize(
    ("value", "first", "unit", "text"),
    [
        (1.5, 1.0, "loss", "+0.5000"),
        (0.5, 1.0, "loss", "-0.5000"),
        (1.0004, 1.0, "loss", "+4.00e-04"),
        (0.83, 0.8, "number", "+0.03"),
        (3, 1200, "count", "-1,197"),
        (2.0, 1.0, "per_second", "× 2.00"),
        (0.123, 0.41, "fraction", "× 0.3"),
        (90.0, 60.0, "seconds", "× 1.50"),
        (1.0, 0.0, "bytes", "–"),
        (0.0, 0.0, "bytes", "same"),
        (2.5, 2.5, "loss", "same"),
        (None, 1.0, "loss", "–"),
        (1.0, None, "loss", "–"),
        (NAN, 1.0, "loss", "–"),
        (NAN, NAN, "loss", "–"),
        (1.0, math.inf, "per_second", "–"),
    ],
)
def test_a_change_is_a_ratio_of_speeds_and_a_difference_of_the_rest(
    value: float | None, first: float | None, unit: Any, text: str
) -> None:
    assert fmt.change(value, first, unit) == text


@pytest.mark.parametrize(
    ("step", "total", "text"),
    [
        (None, None, "no step yet"),
        (40, 225, "step 40 of 225"),
        (None, 225, "step – of 225"),
        (1200, None, "step 1,200"),
    ],
)
def test_step_of(step: int | None, total: int | None, text: str) -> None:
    assert fmt.step_of(step, total) == text


@pytest.mark.parametrize("width", [3, 4, 9, 10])
def test_ellipsis_keeps_both_ends_and_the_width(width: int) -> None:
    cut = fmt.ellipsis("abcdefghijk", width)
    assert len(cut) == width
    assert cut.startswith("a")
    assert width <= 3 or cut.endswith("k")


def test_ellipsis_leaves_short_text_alone() -> None:
    assert fmt.ellipsis("abc", 3) == "abc"


def test_sparkline_goes_from_high_to_low() -> None:
    line = fmt.sparkline([float(100 - i) for i in range(100)], 8)
    assert line == "█▇▆▅▄▃▂▁"


def test_sparkline_of_nothing_constant_and_nan() -> None:
    assert fmt.sparkline([], 10) == ""
    assert fmt.sparkline([None, NAN], 10) == ""
    assert len(set(fmt.sparkline([2.0, 2.0, NAN, 2.0], 10))) == 1
