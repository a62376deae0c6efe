"""Whether a context has room: whole pods, quota, cohorts; the choice is in test_contexts.py."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.kuberay.fit.capacity import Fit, PodSet, Verdict, nodes_verdict
from llmops_kernel.providers.kuberay.fit.node_fit import nodes_with_free_capacity, requests_of
from llmops_kernel.providers.kuberay.fit.queues import quotas_of
from llmops_kernel.providers.kuberay.life.choose import ContextSnapshot, verdict
from tests.providers.kuberay.observations import node, pod

GPU = "nvidia.com/gpu"


def podset(name: str = "gpu", count: int = 2, **asks: str) -> PodSet:
    asked = asks or {"cpu": "8", GPU: "8"}
    spec = {"containers": [{"resources": {"requests": asked}}]}
    return PodSet(name, count, spec, requests_of(spec))


HEAD = podset("head", 1, cpu="4")
PODS = (HEAD, podset())
TEMPLATE = KubeRayTemplate(name="c", image="registry.example/ray")
QUEUED = TEMPLATE.model_copy(update={"queue": "team-a"})


def snapshot(*nodes: Any, used: tuple[Any, ...] = (), **kw: Any) -> ContextSnapshot:
    given: dict[str, Any] = {"quotas": (), "can_grow": False}
    return ContextSnapshot(nodes=nodes, node_pods=used, **(given | kw))


def queue(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "team-a"}, "spec": {"clusterQueue": "all", **spec}}


def share(
    name: str = "all", nominal: str = "16", used: str = "0", cohort: str = "", **limits: str
) -> dict[str, Any]:
    entry = {"name": GPU, "nominalQuota": nominal, **limits}
    taken = {"name": "f", "resources": [{"name": GPU, "total": used}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "cohort": cohort,
            "resourceGroups": [{"flavors": [{"name": "f", "resources": [entry]}]}],
        },
        "status": {"flavorsReservation": [taken]},
    }


def half(name: str) -> dict[str, Any]:
    """Another pod with four GPUs of that node."""
    return pod(f"x-{name}", node=name, asks={GPU: "4"})


def queued(*shares: dict[str, Any], **kw: Any) -> ContextSnapshot:
    return snapshot(node("a"), node("b"), local_queues=(queue(),), cluster_queues=shares, **kw)


CASES: dict[str, tuple[ContextSnapshot, KubeRayTemplate, Fit, str]] = {
    "room": (snapshot(node("a"), node("b")), TEMPLATE, Fit.NOW, "16 of 16 nvidia.com/gpu are free"),
    # 8 GPUs are free in all, but no pod of 8 fits.
    "half of each node is taken": (
        snapshot(node("a"), node("b"), used=(half("a"), half("b"))),
        TEMPLATE,
        Fit.LATER,
        "no free capacity for 2 workers of group gpu now",
    ),
    "one too few": (
        snapshot(node("a")),
        TEMPLATE,
        Fit.NEVER,
        "its 1 node cannot hold 1 worker of group gpu even when empty",
    ),
    "one too few, but nodes are added": (
        snapshot(node("a"), can_grow=True),
        TEMPLATE,
        Fit.UNKNOWN,
        "but nodes may be added",
    ),
    "nodes hidden": (
        ContextSnapshot(quotas=()),
        TEMPLATE,
        Fit.UNKNOWN,
        "no permission to list its nodes",
    ),
    "pods of others hidden": (
        ContextSnapshot(nodes=(node("a"), node("b"))),
        TEMPLATE,
        Fit.UNKNOWN,
        "no permission to list the pods on its nodes",
    ),
    "tainted": (
        snapshot(node("a"), node("b", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})),
        TEMPLATE,
        Fit.NEVER,
        "cannot hold 1 worker",
    ),
    "no KubeRay": (
        ContextSnapshot(missing="KubeRay is not installed"),
        TEMPLATE,
        Fit.NEVER,
        "KubeRay is not installed",
    ),
    "quota of the namespace in use": (
        snapshot(
            node("a"),
            node("b"),
            quotas=(
                {
                    "metadata": {"name": "compute"},
                    "status": {
                        "hard": {f"requests.{GPU}": "16"},
                        "used": {f"requests.{GPU}": "8"},
                    },
                },
            ),
        ),
        TEMPLATE,
        Fit.LATER,
        "quota compute has too little left for 16 of 16 requests.nvidia.com/gpu",
    ),
    "no second cluster": (
        snapshot(
            node("a"),
            node("b"),
            quotas=(
                {
                    "metadata": {"name": "n"},
                    "status": {"hard": {"count/rayclusters.ray.io": "0"}},
                },
            ),
        ),
        TEMPLATE,
        Fit.NEVER,
        "quota n forbids 1 of 0 count/rayclusters.ray.io",
    ),
    "queue has room": (queued(share()), QUEUED, Fit.NOW, "16 of 16"),
    "queue is full": (
        queued(share(used="8")),
        QUEUED,
        Fit.LATER,
        "queue team-a has fewer than 16 nvidia.com/gpu for group gpu left",
    ),
    "queue is too small": (
        queued(share(nominal="8")),
        QUEUED,
        Fit.NEVER,
        "queue team-a can never provide 16 nvidia.com/gpu for group gpu",
    ),
    "cohort lends": (
        queued(share(nominal="8", cohort="all"), share("other", "8", cohort="all")),
        QUEUED,
        Fit.NOW,
        "",
    ),
    "cohort has lent to itself": (
        queued(share(nominal="8", cohort="all"), share("other", "8", "4", cohort="all")),
        QUEUED,
        Fit.LATER,
        "",
    ),
    "cohort may not lend": (
        queued(
            share(nominal="8", cohort="all"), share("other", "8", cohort="all", lendingLimit="4")
        ),
        QUEUED,
        Fit.NEVER,
        "",
    ),
    "queue may not borrow": (
        queued(
            share(nominal="8", cohort="all", borrowingLimit="0"), share("other", "8", cohort="all")
        ),
        QUEUED,
        Fit.NEVER,
        "",
    ),
    "queue without that accelerator": (
        queued(
            {
                "metadata": {"name": "all"},
                "spec": {
                    "resourceGroups": [{"flavors": [{"name": "f", "resources": [{"name": "cpu"}]}]}]
                },
            }
        ),
        QUEUED,
        Fit.NEVER,
        "can never provide 16 nvidia.com/gpu",
    ),
    "no such queue": (queued(share()), QUEUED.model_copy(update={"queue": "b"}), Fit.NEVER, "b"),
    "quota hidden": (
        snapshot(node("a"), node("b"), local_queues=(queue(),)),
        QUEUED,
        Fit.UNKNOWN,
        "no permission to read the quota of queue team-a",
    ),
    "MultiKueue: no local node counts": (
        ContextSnapshot(quotas=(), local_queues=(queue(),), cluster_queues=(share(),)),
        QUEUED.model_copy(update={"managed_by": "kueue.x-k8s.io/multikueue"}),
        Fit.NOW,
        "",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_place_is_judged_by_what_was_seen(
    case: tuple[ContextSnapshot, KubeRayTemplate, Fit, str],
) -> None:
    seen, template, fit, why = case
    found = verdict(PODS, seen, template=template)
    assert found.fit is fit
    assert why in found.reason


def test_small_pods_leave_the_gpu_nodes_alone() -> None:
    nodes = nodes_with_free_capacity([node("a"), node("b", has={GPU: "0", "cpu": "8"})], [])
    few = (podset("gpu", 1, **{GPU: "8", "cpu": "94"}), podset("cpu", 1, cpu="4"), HEAD)
    assert nodes_verdict(few, nodes, can_grow=False).fit is Fit.NOW


def test_one_pod_a_node_where_the_template_says_so() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "affinity": apart}
    pods = PodSet("cpu", 2, spec, requests_of(spec))
    found = nodes_verdict([pods], nodes_with_free_capacity([node("a")], []), can_grow=False)
    assert found == Verdict(
        Fit.NEVER, "its 1 node cannot hold 1 worker of group cpu even when empty"
    )


def test_a_thousand_pods_on_a_thousand_nodes() -> None:
    nodes = nodes_with_free_capacity([node(f"n{i}") for i in range(1000)], [])
    assert nodes_verdict([podset(count=1000)], nodes, can_grow=False).fit is Fit.NOW
    assert nodes_verdict([podset(count=1001)], nodes, can_grow=False).fit is Fit.NEVER


def test_borrowing_is_counted_once() -> None:
    """Our own use beyond what we have has come out of the common pot already."""
    (quota,) = quotas_of(
        share(nominal="8", used="12", cohort="c"), [share("other", "8", "2", cohort="c")]
    )
    assert (quota.available, quota.limit) == (Decimal(2), Decimal(16))
