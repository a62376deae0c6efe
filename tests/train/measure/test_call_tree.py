"""The tree of calls: added up by name, bounded, with every caller before what it calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llmops_kernel.train.measure.call_tree import MOST_CALLS, call_tree, short_name

US = 1e-6


def call(name: str, cpu: float, *calls: Any, device: float = 0.0, **more: Any) -> Any:
    event = SimpleNamespace(
        name=name,
        thread=1,
        device_type="DeviceType.CPU",
        is_async=False,
        cpu_parent=None,
        cpu_children=calls,
        cpu_time_total=cpu,
        self_cpu_time_total=cpu - sum(inner.cpu_time_total for inner in calls),
        device_time_total=device + sum(inner.device_time_total for inner in calls),
        self_device_time_total=device,
    )
    for inner in calls:
        inner.cpu_parent = event
    return SimpleNamespace(**{**vars(event), **more})


def test_calls_of_one_name_from_one_caller_are_one_and_a_backward_pass_is_below_its_name() -> None:
    layer = [call("Linear", 40, call("aten::addmm", 30, device=5)) for _ in range(2)]
    wrapped = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [
        call("Model", 100, *layer),
        call(wrapped, 50, call("AddmmBackward0", 45, call("aten::mm", 40, device=9))),
        call("Memcpy", 7, device=7, device_type="DeviceType.CUDA"),
    ]
    rows = call_tree(events, on_gpu=True)
    names = {row.name: row for row in rows}
    callers = {row.name: row.caller is not None and rows[row.caller].name for row in rows}
    assert callers == {
        "thread 1": False,
        "Model": "thread 1",
        "Linear": "Model",
        "aten::addmm": "Linear",
        "backward": "thread 1",
        "AddmmBackward0": "backward",
        "aten::mm": "AddmmBackward0",
    }
    assert (names["Linear"].calls, names["Linear"].cpu_s) == (2, pytest.approx(80 * US))
    assert names["Model"].self_cpu_s == pytest.approx(20 * US)
    assert names["Model"].device_s == pytest.approx(10 * US)
    assert names["thread 1"].cpu_s == pytest.approx(150 * US)
    assert all(row.caller is None or row.caller < at for at, row in enumerate(rows))
    assert call_tree(events, on_gpu=False)[0].device_s is None


def test_a_tree_is_bounded_by_its_largest_calls() -> None:
    events = [call(f"op {n}", 1000 + n, call("inner", 999)) for n in range(MOST_CALLS)]
    rows = call_tree(events, on_gpu=False)
    assert MOST_CALLS / 2 < len(rows) <= MOST_CALLS
    assert {f"op {MOST_CALLS - 1}", "thread 1"} <= {row.name for row in rows}
    assert call_tree([], on_gpu=False) == ()
    assert len(short_name("x" * 5000)) == 160
