"""The newest run as annotations of its RayCluster, in the stand-in's API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmops_kernel.providers.capabilities import RunStatus
from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.state.run_status import is_due
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud

SHOWN = RunStatus(
    run="r-1",
    submitted_s=100.0,
    state="RUNNING",
    has_ended=False,
    step="3/10",
    loss="1.25",
    time_left="about 2 min left",
)
LIVE = {
    names.RUN: "r-1",
    names.RUN_STATE: "RUNNING",
    names.RUN_SUBMITTED: "100.000",
    names.RUN_UPDATED: "1970-01-01T00:03:20Z",
}


@pytest.mark.parametrize(
    ("live", "change", "now_s", "due"),
    [
        (None, {}, 300.0, True),
        (None, {"was_over": True}, 300.0, False),
        ({}, {}, 211.0, False),  # Another client has just written.
        ({}, {}, 213.0, True),
        ({}, {"state": "FAILED"}, 201.0, True),
        ({}, {"state": "FAILED", "was_over": True}, 201.0, True),
        ({names.RUN_STATE: "SUCCEEDED"}, {}, 300.0, False),  # This client is behind.
        ({names.RUN_STATE: "FAILED"}, {"submitted_s": 150.0}, 300.0, True),  # A retry.
        ({names.RUN_SUBMITTED: "150.000"}, {}, 300.0, False),
        ({names.RUN: "r-0"}, {}, 300.0, False),
        ({names.RUN: "r-0", names.RUN_SUBMITTED: "99.000"}, {}, 201.0, True),
        ({names.RUN: "r-2", names.RUN_SUBMITTED: "101.000"}, {}, 300.0, False),
        ({names.RUN_UPDATED: "yesterday"}, {}, 201.0, True),
    ],
)
def test_the_newest_run_is_shown_once_every_few_seconds(
    live: dict[str, str] | None, change: dict[str, Any], now_s: float, due: bool
) -> None:
    annotations = {} if live is None else LIVE | live
    raycluster = {"metadata": {"annotations": annotations}}
    assert is_due(raycluster, replace(SHOWN, **change), now_s=now_s) is due


def annotations(cloud: Cloud) -> dict[str, str]:
    found = cloud.live()["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key.startswith(names.RUN)}


@pytest.mark.usefixtures("farm")
def test_a_run_is_shown_on_its_raycluster_and_its_last_state_stays(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    before = cloud.live()["metadata"]
    assert cloud.provider.show_run("one", SHOWN)
    shown = annotations(cloud)
    assert {key: shown[key] for key in (names.RUN, names.RUN_STATE, names.RUN_STEP)} == {
        names.RUN: "r-1",
        names.RUN_STATE: "RUNNING",
        names.RUN_STEP: "3/10",
    }
    assert shown[names.RUN_LOSS] == "1.25"
    assert shown[names.RUN_TIME_LEFT] == "about 2 min left"
    after = cloud.live()["metadata"]
    assert after["generation"] == before["generation"]  # The operator has nothing to do.
    version = after["resourceVersion"]
    assert cloud.provider.show_run("one", replace(SHOWN, step="4/10"))
    assert cloud.live()["metadata"]["resourceVersion"] == version
    ended = replace(SHOWN, state="SUCCEEDED", has_ended=True, step="10/10", time_left="")
    assert cloud.provider.show_run("one", ended)
    assert names.RUN_TIME_LEFT not in annotations(cloud)
    assert annotations(cloud)[names.RUN_STATE] == "SUCCEEDED"
    assert cloud.provider.show_run("one", SHOWN)  # Of a client that is behind.
    assert annotations(cloud)[names.RUN_STATE] == "SUCCEEDED"


@pytest.mark.usefixtures("farm")
def test_without_the_right_nothing_is_written(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    verbs = ("get", "list", "watch", "create")
    cloud.standin.user(
        "reader",
        "reader-token",
        [PolicyRule(("ray.io",), ("rayclusters",), verbs)],
        cloud.namespace,
    )
    cloud.login("reader-token")
    close_caches()
    assert not KubeRayProvider(cloud.home).show_run("one", SHOWN)
    assert annotations(cloud) == {}
