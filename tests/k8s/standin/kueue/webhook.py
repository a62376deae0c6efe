"""What Kueue's validating webhook refuses when a RayCluster is changed.

As in Kueue 0.19: `raycluster_webhook.go` (validateElasticJob) and `jobframework/validation.go`
(ValidateUpdateForWorkloadPriorityClassName). Its mutating webhook answers to creations only, so a
worker group that comes later has no gate unless the request has it.
"""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.kueue.templates import GATE, GROUP, gates_of
from tests.k8s.standin.objects.errors import ApiError
from tests.k8s.standin.objects.store import Snapshot
from tests.k8s.standin.objects.writes import Request

_PRIORITY = f"{GROUP}/priority-class"
Body = dict[str, Any]


def validate_update(request: Request, old: Snapshot, body: Body) -> None:
    """Raise ApiError for what Kueue does not accept of a queued cluster."""
    if request.kind.kind != "RayCluster" or request.subresource:
        return
    labels = body["metadata"].get("labels") or {}
    if f"{GROUP}/queue-name" not in labels:
        return
    if problems := [*_ungated(old.body, body), *_priority(old.body, body)]:
        text = f'admission webhook "vraycluster.kb.io" denied the request: {"; ".join(problems)}'
        raise ApiError(403, "Forbidden", text)


def _ungated(old: Body, new: Body) -> list[str]:
    notes = new["metadata"].get("annotations") or {}
    head = old["spec"]["headGroupSpec"]["template"]["spec"]
    # Its creation was answered with gates; before that the stand-in has not seen it yet.
    if notes.get(GATE) != "true" or GATE not in gates_of(head):
        return []
    return [
        f"spec.workerGroupSpecs[{index}].template.spec.schedulingGates: Invalid value: null: an"
        " elastic job must have the ElasticJobSchedulingGate"
        for index, group in enumerate(new["spec"].get("workerGroupSpecs") or [])
        if GATE not in gates_of(group["template"]["spec"])
    ]


def _priority(old: Body, new: Body) -> list[str]:
    had = (old["metadata"].get("labels") or {}).get(_PRIORITY)
    has = (new["metadata"].get("labels") or {}).get(_PRIORITY)
    field = f"metadata.labels[{_PRIORITY}]: Invalid value"
    if has and not had and not new["spec"].get("suspend"):
        return [
            f'{field}: "{has}": WorkloadPriorityClass cannot be added to a non-suspended workload'
        ]
    if had and not has:
        return [f'{field}: "": WorkloadPriorityClass cannot be removed from a workload']
    return []
