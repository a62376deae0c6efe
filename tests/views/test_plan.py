"""A plan in words: units, dashes for what is unknown, and a picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmops_kernel.metrics.planned import MeasuredRun, PlannedRun
from llmops_kernel.planner.plan import Hardware, plan
from llmops_kernel.planner.speed import Rates
from llmops_kernel.views import plan as views
from tests.planner.test_speed import SETUP

RATES = Rates(peak_flops=312e12)


def test_what_is_unknown_is_a_dash() -> None:
    facts = views.facts(plan(SETUP, Hardware()).to_dict())
    assert "unknown whether it fits" in facts["memory"]
    assert facts["speed"].startswith("–")
    assert "cost" not in facts
    assert "micro batch" not in facts
    row = views.row("as it is", plan(SETUP, Hardware()).to_dict())
    assert row[2:] == ["–"] * 5


def test_what_is_known_has_units() -> None:
    hardware = Hardware(
        name="A100", memory_bytes=200e9, rates=RATES, node_hour=3.5, currency="EUR", watts=400
    )
    facts = views.facts(plan(SETUP, hardware, steps=100).to_dict())
    assert facts["model"] == "llama, 6.74 billion weights, all trained"
    assert "of 186 GiB a GPU: fits" in facts["memory"]
    assert "MFU" in facts["speed"]
    assert "EUR" in facts["cost"]
    assert "kWh" in facts["cost"]
    assert "optimizer states" in facts[""]


@pytest.mark.parametrize(
    ("memory_bytes", "host_bytes", "words"),
    [(1e9, None, "does not fit"), (1e12, 1e9, "the host's memory is too small")],
)
def test_why_it_does_not_fit(memory_bytes: float, host_bytes: float | None, words: str) -> None:
    setup = replace(SETUP, strategy="zero2", offload_optimizer=True)
    hardware = Hardware(memory_bytes=memory_bytes, host_bytes=host_bytes)
    assert views.verdict(plan(setup, hardware).to_dict()) == words


def test_a_fit_at_the_edge_is_no_promise() -> None:
    needed = plan(SETUP, Hardware()).memory.total
    at_edge = plan(SETUP, Hardware(memory_bytes=needed * 1.02)).to_dict()
    assert views.verdict(at_edge) == "fits by less than the plan's own error"
    assert views.verdict(plan(SETUP, Hardware(memory_bytes=needed * 1.1)).to_dict()) == "fits"


def test_two_estimates_that_differ_are_said_to() -> None:
    values = plan(SETUP, Hardware()).to_dict()
    near = {"planned": 100.0, "traced": 98.0, "reserved": 120.0}
    far = {"planned": 100.0, "traced": 80.0, "reserved": 120.0}
    assert "trust" not in views.facts({**values, "traced": near})["traced"]
    assert "trust the larger" in views.facts({**values, "traced": far})["traced"]


def test_what_was_learned_says_its_error() -> None:
    values = plan(SETUP, Hardware(rates=RATES)).to_dict()
    assert "learned" not in views.facts(values)
    learned: dict[str, float | None] = {
        "runs": 12, "speed_error": 0.0621, "memory_runs": 0, "memory_error": None,
    }  # fmt: skip
    text = views.facts({**values, "learned": learned})["learned"]
    assert text == (
        "speed from 12 runs on this device: median error 6.2%, of each run planned from those"
        " before it"
    )
    one = {**learned, "runs": 1, "speed_error": None, "memory_runs": 1}
    assert views.learned_words(one) == [
        "speed from 1 run on this device, with an error that is not known yet",
        "memory from 1 run on this device, with an error that is not known yet",
    ]


def test_planned_and_measured_stand_on_one_line() -> None:
    measured = MeasuredRun(steps=9, step_time_s=2.0, tokens_per_second=64.0)
    planned = PlannedRun(
        family="llama", attention="sdpa", device="AMD EPYC, 2 threads, float32", strategy="ddp",
        method="full", tokens=128, work={}, memory={"weights": 3 * 2**30, "overhead": 2**30},
        step_time_s=1.5,
    )  # fmt: skip
    assert views.beside_measured(None) == views.beside_measured(planned) == ""
    on_cpu = planned.model_copy(update={"measured": measured})
    assert views.beside_measured(on_cpu) == "1.50 s a step, measured 2.00 s (-25%)"
    with_peak = measured.model_copy(update={"peak_memory_bytes": 2 * 2**30})
    words = views.beside_measured(on_cpu.model_copy(update={"measured": with_peak}))
    assert words.endswith("; 3.00 GiB of allocated memory, measured 2.00 GiB (+50%)")


def test_a_picture_of_several() -> None:
    plans = [
        (name, plan(replace(SETUP, micro_batch_size=size), Hardware(memory_bytes=8e10)).to_dict())
        for name, size in (("one", 1), ("two", 2))
    ]
    assert views.picture(plans).startswith(b"\x89PNG")


def test_planned_parts_end_where_their_sum_does_and_the_measured_peak_stands_beside() -> None:
    planned = PlannedRun(
        family="llama", attention="sdpa", device="H100", strategy="ddp", method="full", tokens=128,
        work={}, memory={"weights": 2**31, "gradients": 0.0, "logits": 2**30, "overhead": 2**30},
    )  # fmt: skip
    assert views.memory_bars(planned, None) == views.memory_bars(None, 2**30) == []
    rows = views.memory_bars(planned, 4 * 2**30)
    assert [(row.name, row.left, row.width) for row in rows] == [
        ("weights", 0.0, 0.5), ("logits", 0.5, 0.25), ("planned", 0.0, 0.75),
        ("measured", 0.0, 1.0),
    ]  # fmt: skip
    assert (rows[-1].text, rows[-1].detail) == ("4.00 GiB", "+33% of planned")
    assert max(map(len, views.memory_lines(rows))) <= 76
