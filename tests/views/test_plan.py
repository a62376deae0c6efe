"""A plan in words: units, dashes for what is unknown, and a picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

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


def test_a_picture_of_several() -> None:
    plans = [
        (name, plan(replace(SETUP, micro_batch_size=size), Hardware(memory_bytes=8e10)).to_dict())
        for name, size in (("one", 1), ("two", 2))
    ]
    assert views.picture(plans).startswith(b"\x89PNG")
