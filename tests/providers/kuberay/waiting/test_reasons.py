"""What people read about a cluster that waits: one row a situation."""

from __future__ import annotations

import pytest

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.waiting.reasons import waiting
from tests.providers.kuberay.observations import (
    IMAGE,
    container_waits,
    event,
    head,
    node,
    observation,
    pod,
    raycluster,
    stamp,
    unscheduled,
)
from tests.providers.kuberay.waiting.capacity_cases import NOT_FOUND, OF_CAPACITY, one
from tests.providers.kuberay.waiting.pod_cases import OF_PODS

CASES = OF_CAPACITY | OF_PODS


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_first_reason_says_what_and_what_to_do(
    case: tuple[ClusterObservation, str, str, str, bool],
) -> None:
    given, message, remedy, kind, is_stuck = case
    first = waiting(given)[0]
    assert message in first.message
    assert remedy in first.remedy
    assert (first.kind, first.is_stuck) == (kind, is_stuck)


def test_pods_with_the_same_reason_are_reported_once() -> None:
    pods = [
        pod("h", kind="head", node="n0", **container_waits("ErrImagePull", NOT_FOUND)),
        *(pod(f"w{i}", node="n0", **container_waits("ErrImagePull", NOT_FOUND)) for i in range(2)),
        pod("w2", ready=True),
    ]
    (only,) = waiting(observation(raycluster(replicas=3), pods=pods))
    assert only.message.startswith(f"The head and 2 of 3 workers wait: image {IMAGE}")


def test_the_group_is_named_when_there_are_several() -> None:
    groups = [{"groupName": "a", "replicas": 2}, {"groupName": "b", "replicas": 1}]
    pods = [
        head(),
        pod("a0", group="a", ready=True),
        unscheduled("a1", group="a"),
        pod("b0", group="b", ready=True),
    ]
    found = waiting(
        observation(
            raycluster(groups=groups), pods=pods, nodes=[node()], node_pods=[pod("x", node="n0")]
        )
    )
    assert found[0].message.startswith("1 of 2 workers of group a waits: no node has 8 free")


def test_what_could_not_be_looked_at_is_reported_last() -> None:
    found = waiting(one(unscheduled(), denied=("nodes", "events"), silent=("resourcequotas",)))
    assert [reason.kind for reason in found] == ["capacity", *["permission"] * 2, "unasked"]
    assert found[1].message == "Missing permission to list events (rule 5)"
    assert "rbac.yaml" in found[1].remedy
    # No Role of a namespace can grant it.
    assert found[2].message == "Missing permission in the whole cluster to list nodes"
    assert "--cluster-wide" in found[2].remedy


def test_optional_rights_are_not_mentioned_where_they_would_explain_nothing() -> None:
    hidden = observation(
        raycluster(replicas=1),
        pods=[head(ready=False), pod(ready=True)],
        denied=("nodes", "pods of other namespaces"),
    )
    found = waiting(hidden)
    assert found
    assert not any("whole cluster" in reason.message for reason in found)


def test_a_complete_cluster_waits_for_nothing_whatever_is_hidden() -> None:
    given = observation(
        raycluster(replicas=1), pods=[head(), pod(ready=True)], denied=("nodes",), ray_answers=True
    )
    assert waiting(given) == ()


def test_a_suspended_cluster_waits_for_nothing() -> None:
    assert waiting(observation(raycluster(spec={"suspend": True}), pods=[])) == ()


def changed(seconds_ago: float, subresource: str = "") -> dict[str, str]:
    return {"time": stamp(seconds_ago), "manager": "x", "subresource": subresource}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "The operator has not created the pods in 3600 s since the last change"),
        ([changed(5), changed(900)], "The operator has not created the pods yet"),
        ([changed(47), changed(1, "status")], "The operator has not created the pods in 40 s"),
    ],
)
def test_an_operator_that_creates_no_workers_is_late_since_the_last_change(
    changes: list[dict[str, str]], message: str
) -> None:
    """A scaled or resumed cluster is old, and its operator may pause for five minutes."""
    old = raycluster(replicas=2, age_s=3600.0, managedFields=changes)
    (found,) = waiting(observation(old, pods=[head()]))
    assert message.lower().removeprefix("the ") in found.message.lower()
    assert ("5 min" in found.remedy) == ("since" in found.message)
    assert not found.is_stuck


def test_the_faults_of_an_earlier_cluster_of_that_name_are_not_reported() -> None:
    old = event("InvalidRayClusterSpec", "bad")
    old["involvedObject"]["uid"] = "another"
    (found,) = waiting(observation(raycluster(status={}), events=[old]))
    assert "InvalidRayClusterSpec" not in found.message


def test_an_accepted_spec_is_no_longer_refused() -> None:
    given = observation(
        raycluster(replicas=1),
        pods=[head(), pod(ready=True)],
        events=[event("InvalidRayClusterSpec", "bad")],
    )
    assert waiting(given) == ()


def test_pods_that_may_not_be_seen_are_not_taken_for_missing() -> None:
    hidden = observation(raycluster(replicas=2), pods=[], denied=("pods",))
    first, rights = waiting(hidden)
    assert "the reason is unknown" in first.message
    assert "has not made the pods" not in first.message
    assert rights.message == "Missing permission to list pods (rule 3)"


def test_the_schedulers_words_about_other_pods_are_left_out() -> None:
    """As of Kubernetes 1.36, which names claims before preemption."""
    first, *_ = waiting(
        one(
            unscheduled(
                message="0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate,"
                " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming"
                " pod."
            ),
            denied=("nodes",),
        )
    )
    assert first.message.endswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_what_was_not_answered_is_said_also_where_no_reason_was_found() -> None:
    pods = (head(ready=True), pod("w0", ready=True), pod("w1", ready=True))
    (reason,) = waiting(observation(raycluster(), pods=pods, silent=("events", "nodes")))
    assert (reason.message, reason.kind) == ("Did not answer in time: events, nodes", "unasked")
