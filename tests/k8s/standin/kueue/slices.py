"""Elastic jobs of Kueue: a Workload for each larger size, and gates that hold back its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy

from tests.k8s.standin.kueue import quota as quota
from tests.k8s.standin.kueue.templates import GATE, GROUP, POD_SET, gates_of
from tests.k8s.standin.operator.status import condition
from tests.k8s.standin.runtime.client import Obj

ANNOTATION = f"{GROUP}/elastic-job"
REPLACES = f"{GROUP}/workload-slice-replacement-for"
Sizes = dict[str, int]


def is_asked(cluster: Obj) -> bool:
    return (cluster["metadata"].get("annotations") or {}).get(ANNOTATION) == "true"


def is_admitted(workload: Obj) -> bool:
    return condition(workload.get("status") or {}, "Admitted").get("status") == "True"


def is_finished(workload: Obj) -> bool:
    return condition(workload.get("status") or {}, "Finished").get("status") == "True"


def is_evicted(workload: Obj) -> bool:
    return condition(workload.get("status") or {}, "Evicted").get("status") == "True"


def has_quota(workload: Obj) -> bool:
    return is_admitted(workload) and not is_finished(workload)


def live(workloads: Iterable[Obj], cluster: Obj) -> list[Obj]:
    """The cluster's Workloads that are not finished, the newest last: the one that may wait."""
    uid = cluster["metadata"]["uid"]
    own = [
        workload
        for workload in workloads
        if not is_finished(workload)
        and any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences") or [])
    ]
    return sorted(own, key=lambda w: (w["metadata"]["creationTimestamp"], not is_admitted(w)))


def sizes(pod_sets: list[Obj]) -> Sizes:
    return {each["name"]: each["count"] for each in pod_sets}


def sizes_of(workload: Obj) -> Sizes:
    return sizes(workload["spec"]["podSets"])


def is_smaller(wanted: Sizes, given: Sizes) -> bool:
    """Return whether no pod set grows: that needs no more quota, so no new slice."""
    return all(count <= given.get(name, 0) for name, count in wanted.items())


def resized(workload: Obj, wanted: Sizes) -> Obj:
    """Patch that gives the Workload the sizes."""
    pod_sets = deepcopy(workload["spec"]["podSets"])
    for each in pod_sets:
        each["count"] = wanted[each["name"]]
    return {"spec": {"podSets": pod_sets}}


def annotations(cluster: Obj, replaced: Obj | None) -> dict[str, str]:
    """Of a new Workload: what its admission replaces."""
    if not is_asked(cluster):
        return {}
    made = {ANNOTATION: "true"}
    if replaced is not None:
        meta = replaced["metadata"]
        made[REPLACES] = f"{meta['namespace']}/{meta['name']}"
    return made


def to_ungate(pods: Iterable[Obj], workload: Obj) -> list[Obj]:
    """Pods that the admitted sizes leave room for; pods that still end count too."""
    granted, ungated, gated = sizes_of(workload), Counter[str](), list[Obj]()
    for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"]):
        if pod["status"].get("phase") in ("Failed", "Succeeded"):
            continue
        if GATE in gates_of(pod["spec"]):
            gated.append(pod)
        else:
            ungated[_pod_set(pod)] += 1
    found = []
    for pod in gated:
        if ungated[_pod_set(pod)] < granted.get(_pod_set(pod), 0):
            ungated[_pod_set(pod)] += 1
            found.append(pod)
    return found


def _pod_set(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_SET, ""))
