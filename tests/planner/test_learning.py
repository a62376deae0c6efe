"""What past runs teach: against another solver of least squares, and on devices of known costs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from llmops_kernel.planner.learning import (
    KINDS,
    MOST_RUNS,
    Learned,
    PastRun,
    assumed_costs,
    device_key,
    fitted,
    learn,
)
from llmops_kernel.planner.memory import Memory
from llmops_kernel.planner.plan import Hardware, plan
from llmops_kernel.planner.speed import Rates, Work, work
from tests.planner.test_speed import SETUP

CPU = "AMD EPYC, 2 threads, float32"
PEAK = 2e11
ASSUMED = assumed_costs(Rates(peak_flops=PEAK), on_gpu=False)


def total(of: Work, costs: Sequence[float]) -> float:
    return sum(getattr(of, kind) * cost for kind, cost in zip(KINDS, costs, strict=True))


def some_work(random: Random) -> Work:
    """Return work of a step between 20 ms and 20 s, each kind between a hundredth and a half."""
    seconds = 10 ** random.uniform(-1.5, 1)
    shares = [10 ** random.uniform(-2, -0.3) for _ in KINDS]
    numbers = (
        seconds * share / sum(shares) / cost for share, cost in zip(shares, ASSUMED, strict=True)
    )
    return Work(**dict(zip(KINDS, numbers, strict=True)))


def past(of: Work, step_s: float, *, family: str = "llama", device: str = CPU) -> PastRun:
    return PastRun(
        family=family, attention="sdpa", device=device, work=of, step_s=step_s, peak_flops=PEAK
    )


def learned(runs: Sequence[PastRun], family: str = "llama") -> Learned:
    result = learn(runs, family=family, attention="sdpa", device=CPU, on_gpu=False)
    assert result is not None
    return result


shares = st.lists(st.floats(0, 3), min_size=4, max_size=4)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(shares, min_size=1, max_size=12), ridge=st.sampled_from([1e-3, 0.01, 1.0]))
def test_the_fit_is_the_least_squares_of_another_solver(
    rows: list[list[float]], ridge: float
) -> None:
    table = np.array(rows)
    if table.sum() < 0.1:
        return
    result = fitted((table.T @ table).tolist(), table.sum(axis=0).tolist(), ridge=ridge)
    ones = np.ones(len(rows))
    common = float(np.linalg.lstsq(table.sum(axis=1, keepdims=True), ones, rcond=None)[0][0])
    below = np.sqrt(ridge) * np.eye(4) / common
    system, right = np.vstack([table, below]), np.concatenate([ones, np.full(4, np.sqrt(ridge))])
    best, residual = nnls(system, right)
    assert min(result) >= 0
    # Where two costs are alike their sum is determined, and the ridge hardly tells them apart.
    assert np.linalg.norm(system @ result - right) == pytest.approx(residual, rel=1e-5, abs=1e-6)
    assert table @ result == pytest.approx(table @ best, rel=1e-3, abs=1e-3)


def test_one_run_is_one_factor() -> None:
    done = some_work(Random(1))
    costs = learned([past(done, 3 * total(done, ASSUMED))]).costs
    assert costs == pytest.approx([3 * cost for cost in ASSUMED])


@pytest.mark.parametrize("seed", range(4))
def test_the_costs_of_a_device_are_learned(seed: int) -> None:
    """Its costs are up to four times those assumed, or a quarter; steps vary by 2 %."""
    random = Random(seed)
    costs = [cost * 4 ** random.uniform(-1, 1) for cost in ASSUMED]
    runs = [past(done, total(done, costs) * random.gauss(1, 0.02))
            for done in (some_work(random) for _ in range(40))]  # fmt: skip
    new = [some_work(random) for _ in range(50)]

    def error(known: int) -> float:
        result = learned(runs[:known])
        return median(abs(sum(result.seconds(one).values()) / total(one, costs) - 1) for one in new)

    assumed = median(abs(total(one, ASSUMED) / total(one, costs) - 1) for one in new)
    assert error(4) < assumed
    assert error(12) < 0.1
    assert error(40) < 0.05


def test_each_run_is_predicted_from_those_before_it() -> None:
    random = Random(5)
    runs = []
    for number in range(9):
        done = some_work(random)
        family = "llama" if number % 2 else "qwen2"
        runs.append(past(done, total(done, ASSUMED) * random.uniform(0.5, 2), family=family))
    errors = []
    for number in range(1, 9):
        run = runs[number]
        predicted = learned(runs[:number], run.family).seconds(run.work)
        errors.append(abs(sum(predicted.values()) / run.step_s - 1))
    result = learned(runs)
    assert result.speed.runs == 9
    assert result.speed.median == pytest.approx(median(errors))
    assert result.of_family == 4
    assert learned(runs[:1]).speed.median is None


def test_runs_of_a_family_share_a_factor_and_others_fall_back_to_the_device() -> None:
    random = Random(6)
    runs = []
    for number in range(60):
        done, is_slow = some_work(random), number % 2
        time_s = total(done, ASSUMED) * (1.3 if is_slow else 1.0)
        runs.append(past(done, time_s, family="qwen2" if is_slow else "llama"))
    new = some_work(random)
    times = {name: sum(learned(runs, name).seconds(new).values()) / total(new, ASSUMED)
             for name in ("llama", "qwen2", "gemma")}  # fmt: skip
    assert times["llama"] < times["gemma"] < times["qwen2"]
    assert times["qwen2"] / times["llama"] == pytest.approx(1.3, abs=0.06)
    other = learn(runs, family="llama", attention="sdpa", device="EPYC 9, float32", on_gpu=False)
    assert other is None


def test_a_disturbed_run_does_not_decide() -> None:
    random = Random(7)
    runs = [past(done, total(done, ASSUMED)) for done in (some_work(random) for _ in range(9))]
    slow = some_work(random)
    result = learned([*runs, past(slow, 20 * total(slow, ASSUMED))])
    new = some_work(random)
    assert sum(result.seconds(new).values()) == pytest.approx(total(new, ASSUMED), rel=0.15)


def test_only_the_newest_runs_of_a_device_teach() -> None:
    random = Random(8)
    works = [some_work(random) for _ in range(2 * MOST_RUNS)]
    runs = [past(done, total(done, ASSUMED) * (9 if number < MOST_RUNS else 1))
            for number, done in enumerate(works)]  # fmt: skip
    result = learned(runs)
    assert result.speed.runs == MOST_RUNS
    assert sum(result.seconds(works[0]).values()) == pytest.approx(total(works[0], ASSUMED))


def test_memory_is_corrected_where_it_is_least_sure() -> None:
    """Weights are what they are; what lives for a step is half as much again on this device."""
    planned = [Memory(weights=size, activations=size, logits=size / 2, overhead=9.0)
               for size in (1e9, 4e9, 2e9)]  # fmt: skip
    runs = [
        PastRun(
            family="llama", attention="flash", device="H100 SXM, bfloat16", work=work(SETUP),
            step_s=1.0, memory=one, peak_memory_bytes=one.weights * 3.25,
        )
        for one in planned
    ]  # fmt: skip
    rates = Rates(peak_flops=9.9e14, memory_per_second=3.35e12)
    result = learn(
        runs, family="llama", attention="flash", device="H100 SXM, bfloat16",
        on_gpu=True, rates=rates,
    )  # fmt: skip
    assert result is not None
    # Two squares of shares 1.5 / 3.25 each, and one run's worth of the assumption that it is 1.
    share = 1.5 / 3.25
    expected = (3 * share * (1 - 1 / 3.25) + 1) / (3 * share**2 + 1)
    assert result.moving == pytest.approx(expected)
    corrected = result.corrected(planned[0])
    assert corrected.weights == 1e9
    assert corrected.activations == pytest.approx(expected * 1e9)
    assert result.memory.runs == 3
    assert result.memory.median is not None
    assert result.memory.median < 1 - 2.5 / 3.25


def test_a_plan_of_what_was_learned() -> None:
    """On a CPU nothing but runs says how fast it is; its memory is not measured."""
    setup, done = SETUP, work(SETUP)
    result = learned([past(done, 100.0), past(done, 100.0)])
    made_plan = plan(setup, Hardware(name="CPU"), learned=result)
    assert made_plan.speed is not None
    assert made_plan.speed.step_s == pytest.approx(100.0, rel=0.01)
    assert made_plan.speed.mfu == pytest.approx(
        made_plan.speed.required_flops / made_plan.speed.step_s / PEAK
    )
    assert made_plan.memory == plan(setup, Hardware()).memory
    values = made_plan.to_dict()["learned"]
    assert values["runs"] == 2
    assert values["speed_error"] == pytest.approx(0, abs=1e-6)
    assert values["memory_error"] is None


@pytest.mark.parametrize(
    ("name", "threads", "key"),
    [
        ("NVIDIA H100 80GB HBM3", None, "H100 SXM, bfloat16"),
        ("H100 SXM", None, "H100 SXM, bfloat16"),
        ("AMD EPYC", 1, "AMD EPYC, 1 thread, bfloat16"),
        ("AMD EPYC", 4, "AMD EPYC, 4 threads, bfloat16"),
    ],
)
def test_names_of_devices(name: str, threads: int | None, key: str) -> None:
    assert device_key(name, dtype="bfloat16", threads=threads) == key
