"""The parts of the server that its handlers share."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.standin.api.auth import ADMINS, Auth, User
from tests.k8s.standin.api.faults import Faults
from tests.k8s.standin.api.watches import Watch
from tests.k8s.standin.kueue.webhook import validate_update
from tests.k8s.standin.objects.deletes import Deletes
from tests.k8s.standin.objects.kinds import (
    CRD,
    NAMESPACE,
    PRIORITY_CLASS,
    Kind,
    Registry,
    from_definition,
)
from tests.k8s.standin.objects.quota import Quotas
from tests.k8s.standin.objects.store import Snapshot, Store
from tests.k8s.standin.objects.writes import Request, Writes

ADMIN_TOKEN, USER_TOKEN = "admintok", "usertok"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
KUEUE = {
    "workloads": "Workload",
    "localqueues": "LocalQueue",
    "clusterqueues": "ClusterQueue",
    "resourceflavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "workloadpriorityclasses": "WorkloadPriorityClass",
}
_CLUSTER_WIDE = frozenset(
    {"clusterqueues", "resourceflavors", "cohorts", "workloadpriorityclasses"}
)


@dataclass
class State:
    """Everything there is."""

    controllers: bool = True
    bookmark_s: float = 10.0
    store: Store = field(init=False)
    registry: Registry = field(default_factory=Registry)
    faults: Faults = field(default_factory=Faults)
    watches: set[Watch] = field(default_factory=set)
    requests: collections.Counter[str] = field(default_factory=collections.Counter)
    asked_by: dict[str, set[str]] = field(default_factory=dict)
    """User -> what each request of theirs asked for, as in `requests`."""
    auth: Auth = field(init=False)
    writes: Writes = field(init=False)
    deletes: Deletes = field(init=False)
    quotas: Quotas = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store()
        self.auth = Auth(self.store)
        self.writes = Writes(self.store)
        self.deletes = Deletes(self.store)
        self.writes.release = self._release
        self.quotas = Quotas(self.store, self.registry)
        if self.controllers:
            self.writes.admissions.append(self.quotas.admit)
            self.writes.update_admissions.append(validate_update)
        self.auth.add(ADMIN_TOKEN, User("admin", (ADMINS,)))
        self.auth.add(USER_TOKEN, User("alice"))
        for name in NAMESPACES:
            self.make(NAMESPACE, {"metadata": {"name": name}})
        for name, value in (("cluster", 2000000000), ("node", 2000001000)):
            body = {"metadata": {"name": f"system-{name}-critical"}, "value": value}
            self.make(PRIORITY_CLASS, body)

    def make(self, kind: Kind, body: dict[str, Any], namespace: str = "") -> Snapshot:
        """Creates an object on the server's own behalf."""
        name = body["metadata"].get("name", "")
        request = Request(kind, kind.storage, namespace, name, manager="standin")
        return self.writes.create(request, body)

    def _release(self, snapshot: Snapshot) -> Snapshot:
        return self.store.remove(snapshot)

    def define(self, definition: dict[str, Any]) -> Kind:
        """Serves a custom resource; again: another schema for the objects that are there."""
        kind = from_definition(definition)
        old = self.registry.remove(kind.group, kind.plural)
        self.registry.add(kind)
        name = definition["metadata"]["name"]
        body = {k: v for k, v in definition.items() if k not in ("apiVersion", "kind")}
        request = Request(CRD, "v1", "", name, manager="standin")
        there = self.store.get(CRD, "", name)
        if there is None:
            self.writes.create(request, body)
        else:
            self.writes.replace(request, there, body)
        self._condition(request)
        if old is not None:
            self._move(old, kind)
        return kind

    def _condition(self, request: Request) -> None:
        status = {
            "conditions": [
                {"type": "NamesAccepted", "status": "True"},
                {"type": "Established", "status": "True"},
            ]
        }
        request.subresource = "status"
        self.writes.patch(request, lambda body: {**body, "status": status})

    def _move(self, old: Kind, new: Kind) -> None:
        objects = self.store.list(old)
        self.store.drop(old)
        for item in objects:
            self.store.keep(Snapshot(new, item.body, item.owners))

    def undefine(self, group: str, plural: str) -> None:
        kind = self.registry.remove(group, plural)
        if kind is not None:
            self.store.drop(kind)
            if there := self.store.get(CRD, "", f"{plural}.{group}"):
                self.store.remove(there)


def kueue_definitions() -> list[dict[str, Any]]:
    """Kueue's resources without schemas, in the two versions that clients meet."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.kueue.x-k8s.io"},
            "spec": {
                "group": "kueue.x-k8s.io",
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": plural,
                    "singular": kind.lower(),
                },
                "scope": "Cluster" if plural in _CLUSTER_WIDE else "Namespaced",
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": version == "v1beta1",
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": free},
                    }
                    for version in ("v1beta2", "v1beta1")
                ],
            },
        }
        for plural, kind in KUEUE.items()
    ]
