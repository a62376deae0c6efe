"""How many pods the operator makes: the one rule, and that everything which counts pods uses it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.cli.clusters.details import workers
from llmops_kernel.providers.capabilities import EditKind
from llmops_kernel.providers.kuberay.edit_effect import effect_of_edit
from llmops_kernel.providers.kuberay.fit.capacity import podsets_of
from llmops_kernel.providers.kuberay.resource import status
from llmops_kernel.providers.kuberay.resource.status import (
    expected_pods,
    expected_pods_by_group,
    least_pods,
    max_replicas,
    total_expected_pods,
)
from llmops_kernel.providers.kuberay.waiting.reasons import waiting
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from tests.providers.kuberay.observations import head, observation, pod, raycluster

Group = dict[str, Any]


def group(**fields: Any) -> Group:
    """As the CRD fills it in."""
    defaults = {"replicas": 0, "minReplicas": 0, "maxReplicas": 2**31 - 1, "numOfHosts": 1}
    return {"groupName": "gpu", "template": {}, **defaults, **fields}


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({"replicas": 3}, 3),
        ({"replicas": 3, "maxReplicas": 2}, 2),
        ({"replicas": 1, "minReplicas": 2}, 2),
        ({"replicas": 3, "numOfHosts": 4}, 12),
        ({"replicas": 9, "maxReplicas": 2, "numOfHosts": 4}, 8),
        ({"replicas": 0, "minReplicas": 1, "numOfHosts": 4}, 4),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 3, "minReplicas": 3, "suspend": True}, 0),
        ({"replicas": 3, "suspend": False}, 3),
        ({"replicas": 3, "maxReplicas": 0}, 0),
        ({"replicas": None, "minReplicas": 2}, 2),
        ({"replicas": None, "minReplicas": None, "maxReplicas": None, "numOfHosts": None}, 0),
        ({"replicas": 3, "numOfHosts": 0}, 3),
        # The operator refuses such a spec; what it would compute is the same.
        ({"replicas": 0, "minReplicas": 3, "maxReplicas": 2}, 3),
        ({"replicas": "many", "maxReplicas": "none"}, 0),
        ({"replicas": True}, 0),
    ],
)
def test_pods_of_a_group(fields: Group, pods: int) -> None:
    assert expected_pods(group(**fields)) == pods


NUMBERS = st.one_of(st.none(), st.integers(0, 60))
GROUPS = st.builds(
    group,
    replicas=NUMBERS,
    minReplicas=NUMBERS,
    maxReplicas=NUMBERS,
    numOfHosts=st.integers(1, 8),
    suspend=st.sampled_from([True, False, None]),
)


@given(GROUPS)
def test_pods_stay_within_the_bounds_and_are_whole_replicas(one: Group) -> None:
    pods, hosts = expected_pods(one), one["numOfHosts"]
    assert pods % hosts == 0
    if one["suspend"] is True:
        assert pods == least_pods(one) == 0
        return
    least, most = one["minReplicas"] or 0, max_replicas(one)
    if most is None:
        assert pods >= least * hosts
    elif most >= least:
        assert least * hosts <= pods <= most * hosts
        if least <= (one["replicas"] or 0) <= most:
            assert pods == (one["replicas"] or 0) * hosts


@given(st.lists(GROUPS, max_size=4))
def test_all_that_counts_pods_agrees(groups: list[Group]) -> None:
    """Status, capacity check, wait reasons and edit preview look at the same cluster."""
    named = [{**one, "groupName": f"g{index}"} for index, one in enumerate(groups)]
    cluster = raycluster(groups=named) if named else raycluster(spec={"workerGroupSpecs": []})
    expected = {one["groupName"]: expected_pods(one) for one in named}
    assert expected_pods_by_group(cluster) == expected
    assert total_expected_pods(cluster) == sum(expected.values())
    podsets = {one.name: one.count for one in podsets_of(cluster) if one.name != "head"}
    assert podsets == {name: count for name, count in expected.items() if count}
    pods = [
        pod(f"{name}-{index}", group=name, ready=True)
        for name, count in expected.items()
        for index in range(min(count, 12))
    ]
    missing = sum(max(0, count - 12) for count in expected.values())
    reasons = waiting(observation(cluster, pods=(head(ready=True), *pods)))
    assert bool(reasons) is bool(missing)


# Corners that one of the four counts had wrong


@pytest.mark.parametrize(
    "fields",
    [{"replicas": 5, "maxReplicas": 2}, {"replicas": 2, "suspend": True}],
    ids=["above the maximum", "suspended group"],
)
def test_the_capacity_check_counts_what_the_operator_makes(fields: Group) -> None:
    cluster = raycluster(groups=[group(**fields)])
    counts = {one.name: one.count for one in podsets_of(cluster)}
    assert counts.get("gpu", 0) == expected_pods(group(**fields))


def test_a_group_at_its_maximum_waits_for_nothing() -> None:
    cluster = raycluster(groups=[group(replicas=5, maxReplicas=2)])
    pods = (head(ready=True), pod("w0", ready=True), pod("w1", ready=True))
    assert waiting(observation(cluster, pods=pods)) == ()


@pytest.mark.parametrize(
    ("fields", "running"),
    [
        ({"replicas": 5, "maxReplicas": 2}, 2),
        ({"replicas": 0, "minReplicas": 2}, 2),
        ({"replicas": 2, "suspend": True}, 0),
    ],
    ids=["above the maximum", "below the minimum", "suspended group"],
)
def test_the_edit_preview_counts_what_the_operator_has_made(fields: Group, running: int) -> None:
    """Without a look at the pods themselves."""
    live = raycluster(groups=[group(**fields)])
    new = raycluster(groups=[group(**fields)], spec={"rayVersion": "2.60.0"})
    strategy = {"upgradeStrategy": {"type": "Recreate"}}
    live["spec"] |= strategy
    new["spec"] |= strategy
    effect = effect_of_edit(live, new, jobs=())
    assert effect.kind is EditKind.RESTART
    pods = f"{running} worker pod{'s' * (running != 1)}" if running else ""
    assert [line for line in effect.stops if "worker" in line] == ([pods] if pods else [])


def test_a_lower_maximum_ends_pods_and_is_said() -> None:
    live = raycluster(groups=[group(replicas=4, maxReplicas=8)])
    new = raycluster(groups=[group(replicas=4, maxReplicas=1)])
    effect = effect_of_edit(live, new, jobs=(), pods={"head": 1, "gpu": 4})
    assert effect.stops == ("3 pods of group gpu",)
    assert effect.needs_confirmation


def test_replicas_below_the_minimum_end_only_pods_above_it() -> None:
    live = raycluster(groups=[group(replicas=4, minReplicas=2)])
    new = raycluster(groups=[group(replicas=0, minReplicas=2)])
    effect = effect_of_edit(live, new, jobs=(), pods={"head": 1, "gpu": 4})
    assert effect.stops == ("2 pods of group gpu",)


def test_with_the_autoscaler_its_own_number_is_kept() -> None:
    auto = {"enableInTreeAutoscaling": True}
    live = raycluster(groups=[group(replicas=4, maxReplicas=8)], spec=auto)
    new = raycluster(groups=[group(replicas=0, maxReplicas=3)], spec=auto)
    effect = effect_of_edit(live, new, jobs=(), pods={"head": 1, "gpu": 4})
    assert effect.stops == ("1 pod of group gpu",)


def test_a_suspended_group_does_not_keep_the_operator_behind() -> None:
    """`minWorkerReplicas` leaves suspended groups out."""
    groups = [group(replicas=2, minReplicas=2, suspend=True)]
    cluster = raycluster(groups=groups, status={"observedGeneration": 1, "state": "ready"})
    cluster["metadata"]["generation"] = 2
    assert not status.is_behind(cluster)


def test_a_cluster_that_is_resumed_while_its_pods_are_deleted_is_not_ready() -> None:
    """The operator deletes all pods first; until then the head reports ready."""
    conditions = [{"type": "HeadPodReady", "status": "True"}]
    counts = {"observedGeneration": 1, "desiredWorkerReplicas": 2, "readyWorkerReplicas": 2}
    cluster = raycluster(replicas=2, status={**counts, "conditions": conditions})
    assert status.phase_of(cluster).state is ClusterState.READY
    conditions.append({"type": "RayClusterSuspending", "status": "True"})
    assert status.phase_of(cluster).state is ClusterState.STARTING


def test_a_group_is_shown_in_pods_where_its_ready_pods_are() -> None:
    """Two slices of four hosts: `7 of 8` and not `7 of 2`."""
    cluster = raycluster(replicas=2)
    cluster["spec"]["workerGroupSpecs"][0]["numOfHosts"] = 4
    pods = [pod(f"w{number}", ready=number < 7) for number in range(8)]
    (info,) = status.group_infos(cluster, pods)
    assert (info.replicas, info.hosts, info.pods, info.ready) == (2, 4, 8, 7)
    shown = ClusterInfo(
        name="one",
        provider="kuberay",
        state=ClusterState.STARTING,
        workers_ready=7,
        workers_wanted=8,
        groups=(info, info),
    )
    assert workers(shown) == "7 of 8 ready (gpu 7 of 8, gpu 7 of 8)"
