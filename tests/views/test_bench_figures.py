"""The bench's numbers out of journals."""

from __future__ import annotations

import json

import pytest

from llmops_kernel.metrics.events import PHASES, ProcessEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.bench_figures import (
    Kind,
    LoopFigures,
    Measured,
    in_order,
    misfit,
    phase_shares,
)
from tests.store.events import end, phase, step


def measured(kind: Kind, **phases: float) -> Measured:
    return Measured(kind=kind, first_step_s=sum(phases.values()), phases=phases)


WARM = [measured("warm", driver=d, workers=1.0) for d in (1.0, 3.0, 2.0)]
COLD = [measured("cold", driver=d, imports=10.0) for d in (4.0, 2.0)]


@pytest.mark.parametrize(
    ("runs", "warm_s", "cold_s", "ratio"),
    [
        ([*WARM, *COLD], 3.0, 13.0, 13 / 3),
        (WARM, 3.0, None, None),
        (COLD, None, 13.0, None),
        ([], None, None, None),
    ],
)
def test_medians_and_their_ratio(runs, warm_s, cold_s, ratio) -> None:
    figures = LoopFigures.of(runs)
    assert (figures.warm.median_s, figures.cold.median_s) == (warm_s, cold_s)
    assert figures.ratio == (None if ratio is None else pytest.approx(ratio, abs=5e-4))


def test_a_phase_that_some_runs_lack_took_them_no_time() -> None:
    runs = [measured("warm", imports=4.0), measured("warm", driver=1.0), measured("warm")]
    assert LoopFigures.of(runs).warm.phases == {"driver": 0.0, "imports": 0.0}


def test_the_json_has_exactly_these_keys() -> None:
    reported = json.loads(json.dumps(LoopFigures.of([*WARM, *COLD]).as_dict()))
    assert reported == {
        "warm": {
            "median_s": 3.0,
            "runs_s": [2.0, 4.0, 3.0],
            "phases": {"driver": 2.0, "workers": 1.0},
        },
        "cold": {
            "median_s": 13.0,
            "runs_s": [14.0, 12.0],
            "phases": {"driver": 3.0, "imports": 10.0},
        },
        "ratio": 4.333,
    }
    nothing = {"median_s": None, "runs_s": [], "phases": {}}
    empty = json.loads(json.dumps(LoopFigures.of([]).as_dict()))
    assert empty == {"warm": nothing, "cold": nothing, "ratio": None}


def journal() -> list:
    """Two phases that overlap, one whose end nobody told, a gap, and a phase after the step."""
    return [
        phase("snapshot", "begin", 10.0, stream="1-client", seq=1),
        phase("snapshot", "end", 11.0, stream="1-client", seq=2),
        phase("runtime_env", "begin", 11.0, stream="1-client", seq=3),
        phase("driver", "begin", 12.0, stream="1-driver", seq=1),
        phase("driver", "end", 14.0, stream="1-driver", seq=2),
        phase("workers", "begin", 13.5, stream="1-driver", seq=3),
        phase("workers", "end", 15.0, stream="1-driver", seq=4),
        phase("engine", "begin", 16.0, stream="1-worker-1", seq=1),
        phase("engine", "end", 17.0, stream="1-worker-1", seq=2),
        step(1, seq=3, time_s=18.0),
        phase("save", "begin", 18.5, stream="1-worker-1", seq=4),
        phase("save", "end", 19.0, stream="1-worker-1", seq=5),
        end("SUCCEEDED", time_s=20.0),
    ]


def test_a_phase_lasts_until_the_next_begins_and_all_add_up() -> None:
    view = TrainingView(journal())
    shares = phase_shares(view)
    assert shares == pytest.approx(
        {"snapshot": 1.0, "runtime_env": 1.0, "driver": 1.5, "workers": 2.5, "engine": 2.0}
    )
    assert sum(shares.values()) == pytest.approx(view.submit_to_first_step_s)


def test_a_run_without_a_step_has_no_shares() -> None:
    assert phase_shares(TrainingView([e for e in journal() if e.kind != "step"])) == {}
    assert phase_shares(TrainingView()) == {}


def processes(*warm: bool) -> TrainingView:
    """The driver, then the ranks; what started cold gives a reason."""
    return TrainingView(
        ProcessEvent(
            role="worker" if n else "driver",
            rank=n - 1 if n else None,
            warm=is_warm,
            reason="" if is_warm else "no server",
            stream="1-driver",
            seq=n + 1,
        )
        for n, is_warm in enumerate(warm)
    )


@pytest.mark.parametrize(
    ("kind", "warm", "why"),
    [
        ("warm", (True, True, True), ""),
        ("cold", (False, False, False), ""),
        ("warm", (True, False, True), "rank 0): no server"),
        ("warm", (False, False, False), "cold: no server"),
        ("cold", (True, True, True), "warm"),
        ("cold", (False, False, True), "1 warm"),
        ("warm", (True, True), "2 of its 3 processes"),
        ("cold", (), "0 of its 3 processes"),
    ],
)
def test_a_run_that_started_otherwise_is_reported(kind, warm, why) -> None:
    found = misfit(kind, processes(*warm), num_workers=2)
    assert why in found
    assert bool(found) == bool(why)


def test_phases_are_in_the_order_of_the_start_up() -> None:
    names = [*PHASES, "another", "others"]
    assert in_order([*reversed(names), PHASES[0]]) == names
