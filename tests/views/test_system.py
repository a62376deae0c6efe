"""Charts and tables of measurements: what is unknown is not drawn, and energy is a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from llmops_kernel.kinds.train import TRAIN
from llmops_kernel.metrics.events import (
    AnyEvent,
    EndEvent,
    HoldEvent,
    RestartEvent,
    StallEvent,
    SystemEvent,
)
from llmops_kernel.metrics.system import HostSample, StackGroup, WorkerSample, sample_interval_s
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.system import (
    MOST_POINTS,
    MOST_WORKERS,
    panel_stall,
    panel_system,
    system_rows,
    worker_table,
)

HOST = HostSample(host="a", cpu=0.25, memory_used_bytes=2**31, memory_total_bytes=2**32)


def sample(number: int, *workers: WorkerSample, energy_j: float | None = None) -> SystemEvent:
    return SystemEvent(
        stream="1-driver",
        seq=number + 1,
        time_s=1000.0 + 5 * number,
        workers=workers,
        hosts=(HOST,),
        energy_j=energy_j,
    )


def worker(rank: int, **more: object) -> WorkerSample:
    return WorkerSample(rank=rank, host="a", pid=10 + rank, **more)  # type: ignore[arg-type]


def titles(view: TrainingView) -> list[str]:
    return [chart.title for chart in panel_system(view).charts]


def test_what_nobody_has_measured_has_no_chart_no_column_and_no_figure() -> None:
    view = TrainingView([sample(0, worker(0, cpu=1.0))])
    assert titles(view) == ["Host CPU", "Host memory", "Cores of a worker"]
    assert worker_table(view).columns == ["rank", "host", "pid", "cores"]
    assert view.energy_j is None
    assert "energy_kwh" not in {figure.key for figure in TRAIN.all_figures(view)}
    assert panel_system(TrainingView()).charts == []


def test_the_parts_of_a_step_are_shares_of_it() -> None:
    parts = {"step_s": 2.0, "data_s": 0.5, "others_s": 0.25, "host_s": 0.0}
    view = TrainingView([sample(0, worker(0, **parts))])
    charts = {chart.title: chart.lines[0] for chart in panel_system(view).charts}
    assert charts["Waiting for data"].values == [25.0]
    assert charts["Waiting for other ranks"].values == [12.5]
    assert charts["Waiting for data"].label == "rank 0"
    assert "Optimizer in host memory" not in charts  # It is on the device.
    [row] = worker_table(view).rows
    assert "1.75 s" in row


def test_a_slow_worker_and_one_with_lowered_clocks_say_so() -> None:
    slow = worker(1, is_slow=True, slow_part="waiting for data")
    view = TrainingView([sample(0, worker(0), slow, worker(2, throttled=("power cap",)))])
    notes = [row[-1] for row in worker_table(view).rows]
    assert notes == ["", "slower than the others: waiting for data", "clocks lowered: power cap"]


def test_energy_of_attempts_adds_up_in_kwh() -> None:
    first = [sample(n, energy_j=n * 1.8e6) for n in range(1, 3)]
    second = sample(9, energy_j=1.8e6).model_copy(update={"attempt": 2, "stream": "2-driver"})
    view = TrainingView([second, *first])
    assert view.energy_j == pytest.approx(3.6e6 + 1.8e6)
    [figure] = [figure for figure in TRAIN.all_figures(view) if figure.key == "energy_kwh"]
    assert figure.value(view) == pytest.approx(1.5)
    [money] = [figure for figure in TRAIN.all_figures(view) if figure.key == "energy_cost"]
    assert money.value(view) is None


@pytest.mark.parametrize(
    ("prices", "money"),
    [
        ([(0.5, "EUR")], 0.75),
        ([(0.5, "EUR"), (0.5, "EUR")], 0.75),
        ([(0.5, "EUR"), (0.25, "EUR")], None),
        ([(0.5, "EUR"), (None, "EUR")], None),
        ([(0.5, "EUR"), (0.5, "USD")], None),
        ([(None, "")], None),
        ([], None),
    ],
)
def test_energy_has_a_price_where_all_nodes_have_the_same(
    prices: list[tuple[float | None, str]], money: float | None
) -> None:
    holds = [
        HoldEvent(node=f"n{n}", state="begin", kwh=kwh, currency=currency, node_hour=9.0, time_s=1)
        for n, (kwh, currency) in enumerate(prices)
    ]
    view = TrainingView([*holds, sample(1, energy_j=1.5 * 3.6e6)])
    assert view.energy_cost.money == (None if money is None else pytest.approx(money))
    assert view.cost.money != view.energy_cost.money or money is None  # Of the nodes alone.
    keys = {figure.key for figure in TRAIN.all_figures(view)}
    assert ("energy_cost" if money is None else "energy_cost_eur") in keys


def test_a_long_run_is_drawn_in_few_points_with_its_ends_and_its_newest_value() -> None:
    events = [sample(n, worker(0, power_w=100.0 + n)) for n in range(3000)]
    system = panel_system(TrainingView(events))
    [power] = [chart for chart in system.charts if chart.key == "power"]
    assert len(system.x) == len(power.lines[0].values) == MOST_POINTS
    assert (power.lines[0].values[0], power.lines[0].values[-1]) == (100.0, 3099.0)
    assert system.x_label == "hours since the first sample"
    assert system.x[-1] == pytest.approx(2999 * 5 / 3600, rel=1e-3)
    many = [worker(rank, power_w=1.0) for rank in range(MOST_WORKERS + 4)]
    system = panel_system(TrainingView([sample(0, *many)]))
    assert len(system.charts[0].lines) == MOST_WORKERS
    assert system.note == "16 of 20 workers are drawn."


def test_a_table_has_a_row_for_each_worker_and_host() -> None:
    rows = system_rows(TrainingView([sample(0, worker(0), worker(1), energy_j=7.0)]))
    assert [row.get("rank") for row in rows] == [0, 1, None]
    assert [row.get("energy_j") for row in rows] == [None, None, 7.0]
    assert {row["time_s"] for row in rows} == {1000.0}


def stalls() -> Iterator[AnyEvent]:
    group = StackGroup(ranks=(1,), hosts=("a",), pids=(11,), state="code", place="a.py:3 (spin)")
    at = {"stream": "1-driver", "step": 4}
    yield StallEvent(seq=1, time_s=10.0, state="begin", groups=(group,), waited_s=9.0, **at)
    yield StallEvent(seq=2, time_s=20.0, state="end", **at)


def test_a_stall_is_shown_until_a_step_a_restart_or_the_end() -> None:
    begin, end = stalls()
    shown = panel_stall(TrainingView([begin]))
    assert shown is not None
    assert shown.message == "No step for 9 s after step 4."
    assert shown.groups.rows == [["1", "code", "a.py:3 (spin)"]]
    assert panel_stall(TrainingView([begin, end])) is None
    restart = RestartEvent(stream="1-controller", seq=1, time_s=15.0, from_step=2, cause="killed")
    assert panel_stall(TrainingView([begin, restart])) is None
    stopped = EndEvent(stream="1-driver", seq=3, time_s=16.0, state="STOPPED")
    view = TrainingView([begin, stopped])
    assert panel_stall(view) is None
    assert [event.step for event in view.stalls] == [4]


def test_a_week_has_some_four_thousand_samples() -> None:
    age_s, count = 0.0, 0
    while age_s < 7 * 24 * 3600:
        age_s += sample_interval_s(age_s, every_s=5.0)
        count += 1
    assert count == pytest.approx(720 * (1 + math.log(168)), rel=0.01)
