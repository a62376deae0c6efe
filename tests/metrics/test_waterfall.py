"""Where the FLOPs go: bars from measured quantities, against sums worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.waterfall import MIN_STEPS, Measured, waterfall

PARTS = ("data_wait_s", "communication_s", "optimizer_s", "offload_s", "between_s", "passes_s")


def test_bars_of_a_known_run():
    """100 s of steps, 25 s of evaluations: half of the steps' time is in passes, 0.2 required."""
    measured = Measured(
        steps=10,
        steps_s=100.0,
        evaluation_s=25.0,
        mfu=0.2,
        hfu=0.3,
        recomputed=0.06,
        parts={
            "data_wait_s": 0.2,
            "communication_s": 0.1,
            "optimizer_s": 0.15,
            "offload_s": 0.0,
            "between_s": 0.05,
            "passes_s": 0.5,
        },
        fixed_share=0.1,
        ceiling=0.75,
    )
    losses = waterfall(measured)
    expected = {
        "data": 20 / 125,
        "communication": 10 / 125,
        "optimizer": 15 / 125,
        "between": 5 / 125,
        "evaluation": 25 / 125,
        "recomputation": 6 / 125,
        "padding": 4 / 125,
        "ceiling": 10 / 125,  # 0.3 of the peak takes 0.4 of the time at three quarters of it
        "fixed": 5 / 125,
        "unexplained": (50 - 20 - 10 - 10 - 5) / 125,
    }
    assert {bar.name: bar.share for bar in losses.bars if bar.share} == pytest.approx(expected)
    assert losses.mfu == pytest.approx(20 / 125)
    assert losses.total == pytest.approx(1.0)


SHARE = st.floats(0, 1)


@given(
    weights=st.lists(SHARE, min_size=len(PARTS), max_size=len(PARTS)).filter(any),
    mfu=SHARE,
    wasted=SHARE,
    recomputed=SHARE,
    fixed=st.none() | SHARE,
    ceiling=st.none() | st.floats(0.3, 1),
    between_s=st.floats(0, 1000),
)
def test_bars_are_never_negative_and_sum_to_one(
    weights, mfu, wasted, recomputed, fixed, ceiling, between_s
):
    """Parts of a step that fill it, and FLOPs that its passes can have made."""
    parts = {name: weight / sum(weights) for name, weight in zip(PARTS, weights, strict=True)}
    mfu *= parts["passes_s"]
    hfu = mfu + wasted * (parts["passes_s"] - mfu)
    losses = waterfall(
        Measured(
            steps=MIN_STEPS,
            steps_s=10.0,
            evaluation_s=between_s,
            mfu=mfu,
            hfu=hfu,
            recomputed=recomputed * (hfu - mfu),
            parts=parts,
            fixed_share=fixed,
            ceiling=ceiling,
        )
    )
    assert all(bar.share is None or bar.share >= 0 for bar in losses.bars)
    assert losses.total == pytest.approx(1.0)


def test_what_was_not_measured_is_named_and_stays_in_the_last_bar():
    measured = Measured(
        steps=5, steps_s=10.0, parts={"passes_s": 0.8, "optimizer_s": 0.2, "communication_s": None}
    )
    losses = waterfall(measured)
    assert losses.mfu is None
    assert losses.share("unexplained") == pytest.approx(0.8)
    assert "waiting for other workers" in losses.unmeasured


def test_too_few_steps_have_no_waterfall():
    assert waterfall(Measured(steps=MIN_STEPS - 1, steps_s=1.0, parts={"passes_s": 1.0})) is None


def test_overlapping_measurements_show_in_the_total():
    """Parts that add up to more than the steps are an error, which is not hidden."""
    parts = {"passes_s": 0.9, "data_wait_s": 0.5, "communication_s": 0.6}
    losses = waterfall(Measured(steps=5, steps_s=10.0, mfu=0.1, parts=parts))
    assert losses.total == pytest.approx(1.2)
