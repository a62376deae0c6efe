from __future__ import annotations

import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.saved_run import saved_run, thinned


def _steps(losses: list[float | None]) -> list[StepEvent]:
    return [
        StepEvent(
            stream="1-worker-1",
            seq=number,
            time_s=float(number),
            step=number,
            loss=loss,
            step_time_s=0.1,
            data_wait_s=0.0,
            compute_s=0.1,
            tokens=1,
        )
        for number, loss in enumerate(losses, start=1)
    ]


RECORD = RunRecord(run_id="r", name="r", created_s=0.0, cluster="local", config={})


def test_a_short_run_is_kept_whole() -> None:
    bundle = saved_run(TrainingView(_steps([3.0, 2.0, 1.0])), RECORD, now_s=10.0)
    rows = np.frombuffer(base64.b64decode(bundle["panel"]["columns"]), dtype="<f4")
    table = rows.reshape(-1, len(COLUMNS))
    assert table[:, 0].tolist() == [1, 2, 3]
    assert table[:, 1].tolist() == [3.0, 2.0, 1.0]
    assert (bundle["last_step"], bundle["loss"], bundle["version"]) == (3, 1.0, 1)
    assert bundle["panel"]["state"]["every_row"] is True


def test_a_long_run_stays_small_and_keeps_its_spike() -> None:
    losses: list[float | None] = [2.0 + 1.0 / n for n in range(1, 100_001)]
    losses[54_321] = 99.0
    bundle = saved_run(TrainingView(_steps(losses)), RECORD, now_s=10.0)
    assert bundle["panel"]["num_rows"] <= 2000
    assert bundle["panel"]["num_steps"] == 100_000
    assert bundle["panel"]["state"]["every_row"] is False
    rows = np.frombuffer(base64.b64decode(bundle["panel"]["columns"]), dtype="<f4")
    assert rows.reshape(-1, len(COLUMNS))[:, 1].max() == 99.0
    assert len(json.dumps(bundle)) < 120_000


@given(
    st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=1, max_size=300),
    st.integers(6, 60),
)
def test_thinning_keeps_order_ends_and_extremes(losses: list[float | None], max_rows: int) -> None:
    steps = _steps(losses)
    kept = thinned(TrainingView(steps), max_rows=max_rows)
    numbers = [step.step for step in kept]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, len(losses))
    assert len(kept) <= max(max_rows, 1)
    known = [x for x in losses if x is not None and math.isfinite(x)]
    shown = [s.loss for s in kept if s.loss is not None and math.isfinite(s.loss)]
    if known:
        assert (min(shown), max(shown)) == (min(known), max(known))


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_diverged_run_is_readable_json(loss: float) -> None:
    bundle = saved_run(TrainingView(_steps([1.0, loss])), RECORD, now_s=10.0)
    json.dumps(bundle, allow_nan=False)
