"""The resources that the stand-in serves: built-in kinds and custom resource definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.standin.objects.merge_keys import BUILT_IN_SCHEMAS

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# In the order of a real server's discovery.
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, eq=False)
class Kind:
    """One resource; the same object for all its versions, so that it keys the store."""

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    custom: bool = False
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    """Field selectors beside metadata.name and metadata.namespace."""
    counted: bool = False
    """Carries metadata.generation."""

    @property
    def storage(self) -> str:
        return self.versions[0]

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def verbs(self) -> tuple[str, ...]:
        return CUSTOM_VERBS if self.custom else VERBS

    def api_version(self, version: str = "") -> str:
        version = version or self.storage
        return f"{self.group}/{version}" if self.group else version

    def schema(self, version: str = "") -> dict[str, Any]:
        return self.schemas.get(version or self.storage, {})


def _core(kind: str, plural: str, *sub: str, short: str = "", **more: Any) -> Kind:
    return _built_in("", "v1", kind, plural, *sub, short=short, **more)


def _built_in(
    group: str, version: str, kind: str, plural: str, *sub: str, short: str = "", **more: Any
) -> Kind:
    schema = BUILT_IN_SCHEMAS.get(kind, {})
    return Kind(
        group,
        (version,),
        kind,
        plural,
        subresources=sub,
        short=tuple(short.split()),
        schemas={version: schema},
        **more,
    )


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
EVENT_FIELDS = (
    *(
        f"involvedObject.{key}"
        for key in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")
    ),
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
POD = _core(
    "Pod",
    "pods",
    *("status", "log", "portforward", "proxy", "exec"),
    short="po",
    categories=("all",),
    fields=POD_FIELDS,
)
NAMESPACE = _core(
    "Namespace", "namespaces", "status", short="ns", namespaced=False, fields=("status.phase",)
)
SERVICE = _core(
    "Service",
    "services",
    *("status", "proxy"),
    short="svc",
    categories=("all",),
    fields=("spec.clusterIP", "spec.type"),
)
SECRET = _core("Secret", "secrets", fields=("type",))
EVENT = _core("Event", "events", short="ev", fields=EVENT_FIELDS)
QUOTA = _core("ResourceQuota", "resourcequotas", "status", short="quota")
SERVICE_ACCOUNT = _core("ServiceAccount", "serviceaccounts", "token", short="sa")
PRIORITY_CLASS = _built_in(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", short="pc", namespaced=False
)
CRD = _built_in(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "status",
    short="crd crds",
    namespaced=False,
)
_RBAC = "rbac.authorization.k8s.io"
ROLE = _built_in(_RBAC, "v1", "Role", "roles")
ROLE_BINDING = _built_in(_RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = _built_in(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = _built_in(
    _RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
BUILT_IN = (
    NAMESPACE,
    POD,
    SERVICE,
    SECRET,
    EVENT,
    QUOTA,
    SERVICE_ACCOUNT,
    _core("ConfigMap", "configmaps", short="cm"),
    _core("Node", "nodes", "status", short="no", namespaced=False, fields=("spec.unschedulable",)),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", "status", short="pvc"),
    _core("PersistentVolume", "persistentvolumes", "status", short="pv", namespaced=False),
    _core("LimitRange", "limitranges", short="limits"),
    _core("Endpoints", "endpoints", short="ep"),
    _built_in(
        *("batch", "v1", "Job", "jobs", "status"),
        categories=("all",),
        fields=("status.successful",),
        counted=True,
    ),
    _built_in("apps", "v1", "Deployment", "deployments", "status", short="deploy", counted=True),
    _built_in("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short="netpol"),
    _built_in("coordination.k8s.io", "v1", "Lease", "leases"),
    _built_in(
        "storage.k8s.io", "v1", "StorageClass", "storageclasses", short="sc", namespaced=False
    ),
    PRIORITY_CLASS,
    CRD,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
)


def from_definition(definition: dict[str, Any]) -> Kind:
    """The resource that a CustomResourceDefinition describes; its storage version comes first."""
    spec, names = definition["spec"], definition["spec"]["names"]
    served = [item for item in spec["versions"] if item.get("served", True)]
    served.sort(key=lambda item: not item.get("storage"))
    sub = ("status",) if any("status" in v.get("subresources", {}) for v in served) else ()
    return Kind(
        spec["group"],
        tuple(item["name"] for item in served),
        names["kind"],
        names["plural"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        subresources=sub,
        short=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        custom=True,
        schemas={v["name"]: v.get("schema", {}).get("openAPIV3Schema", {}) for v in served},
        columns={
            v["name"]: v["additionalPrinterColumns"]
            for v in served
            if v.get("additionalPrinterColumns")
        },
        counted=True,
    )


class Registry:
    """All resources by group, version and plural."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = list(BUILT_IN)
        self.paths = {
            (kind.group, version, kind.plural): kind
            for kind in self.kinds
            for version in kind.versions
        }

    def add(self, kind: Kind) -> None:
        self.remove(kind.group, kind.plural)
        self.kinds.append(kind)
        self.paths.update({(kind.group, version, kind.plural): kind for version in kind.versions})

    def remove(self, group: str, plural: str) -> Kind | None:
        gone = next((k for k in self.kinds if (k.group, k.plural) == (group, plural)), None)
        if gone is not None:
            self.kinds.remove(gone)
            for version in gone.versions:
                del self.paths[group, version, plural]
        return gone

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self.paths.get((group, version, plural))

    def named(self, api_version: str, kind: str) -> Kind | None:
        """By what an object or an owner reference says of itself."""
        group = api_version.rpartition("/")[0]
        return next((k for k in self.kinds if (k.group, k.kind) == (group, kind)), None)

    def groups(self) -> dict[str, list[str]]:
        """Versions of each group, the core one left out."""
        found: dict[str, list[str]] = {}
        for kind in self.kinds:
            if kind.group:
                versions = found.setdefault(kind.group, [])
                versions.extend(v for v in kind.versions if v not in versions)
        return {name: sorted(versions, key=_priority) for name, versions in found.items()}


def _priority(version: str) -> tuple[int, int, int]:
    """Stable versions first, then beta, then alpha; of each the newest first."""
    found = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if found is None:
        return (3, 0, 0)
    rank = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (rank, -int(found[1]), -int(found[3] or 0))
