"""Work that waits on Ray, from reports as Ray 2.60 gave them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.providers.dashboard import demand_reasons

# As the dashboard of a Ray with one CPU told them while a task of three CPUs and a placement
# group of four bundles waited.
SEEN = {
    "usage": {"CPU": [0.0, 1.0]},
    "resourceDemand": [[{"CPU": 3.0}, 1]],
    "pgDemand": [[{"bundles": [[{"CPU": 1.0}, 4]], "strategy": "PACK"}, 1]],
    "requestDemand": [],
}


@pytest.mark.parametrize(
    ("report", "reported"),
    [
        (SEEN, "Ray has pending resource demands: 1 x {3 CPU}, 4 x {1 CPU} at once"),
        (
            {"pgDemand": [[{"bundles": [[{"GPU": 8.0, "CPU": 1.0}, 2], [{"CPU": 1.0}, 1]]}, 3]]},
            "Ray has pending resource demands: 3 times 2 x {8 GPU, 1 CPU} + 1 x {1 CPU} at once",
        ),
        (
            {"resourceDemand": [[{"CPU": float(n)}, n] for n in range(1, 6)]},
            "Ray has pending resource demands: 1 x {1 CPU}, 2 x {2 CPU}, 3 x {3 CPU} and 2 more",
        ),
    ],
)
def test_what_it_waits_for(report: dict[str, Any], reported: str) -> None:
    (waiting,) = demand_reasons(report)
    assert waiting.message == reported
    assert "llmops scale" in waiting.remedy


@pytest.mark.parametrize("report", [None, {}, {"usage": {}, "resourceDemand": [], "pgDemand": []}])
def test_nothing_waits(report: Any) -> None:
    assert demand_reasons(report) == ()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["CPU", "bundles", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["resourceDemand", "pgDemand"]), ANYTHING))
def test_an_odd_report_is_no_error(report: dict[str, Any]) -> None:
    assert len(demand_reasons(report)) <= 1
