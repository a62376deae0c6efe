"""The fields of a KubeRay template."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from llmops_kernel.config.models.kuberay_pods import (
    HeadSettings,
    Raw,
    SecretRef,
    Volume,
    WorkerGroup,
)
from llmops_kernel.config.models.quantity import Quantity, num_bytes
from llmops_kernel.config.models.section import (
    CLUSTER_NAME_PATTERN,
    AnyTemplate,
    MetricsPages,
    Section,
    WarmSettings,
)
from llmops_kernel.version import SUPPORTED_RAY


class Autoscaling(Section):
    shorthand = "enabled"

    enabled: bool = False
    """Ray's autoscaler adds and removes worker pods within the limits of each group."""
    idle_timeout_s: int = Field(default=300, ge=1)
    """Seconds after which an idle worker pod is removed. The head is never removed."""


_MOST_COPIED_BYTES = 4 * 2**30


class Storage(Section):
    """Where results are stored beyond the life of the pods."""

    runs: str | None = None
    """Folder below a volume that all pods mount (`/mnt/team/llmops`), or a bucket URL (`s3://`, `gs://`, `az://`): journals, checkpoints and outputs of runs; `null`: only in the pods. Journals and small outputs are copied to each client that follows a run."""
    copy_outputs: Quantity = "256Mi"
    """Outputs of runs up to this size are copied to the client's run folder, at most `4Gi`; `0` copies none. Without `runs` larger ones are lost when the cluster is suspended or deleted."""
    volumes: tuple[Volume, ...] = ()
    """Mounted by the head and by all workers."""

    @field_validator("copy_outputs")
    @classmethod
    def _at_most(cls, value: str) -> str:
        if not 0 <= num_bytes(value) <= _MOST_COPIED_BYTES:
            raise ValueError("0 to 4Gi: set storage.runs for larger outputs")
        return value


class Tls(Section):
    """TLS between Ray's processes: where the certificate authority of the cluster comes from."""

    secret: str | None = None
    """Name of a Secret with the authority's `tls.crt` and `tls.key`; whoever has a certificate of this authority is let in."""
    issuer: str | None = None
    """Name of an issuer of cert-manager, which signs an authority for this cluster only. Needs rule 13 of `rbac.yaml`."""
    issuer_kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    """Kind of that issuer."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.secret and self.issuer:
            raise ValueError("give `secret` or `issuer`, not both")
        return self

    @property
    def enabled(self) -> bool:
        return bool(self.secret or self.issuer)


class Metrics(MetricsPages):
    """What a team's Prometheus and Grafana on Kubernetes get to know of the cluster."""

    pod_monitor: bool = False
    """Render a PodMonitor, by which the Prometheus operator scrapes all pods. Needs rule 15 of `rbac.yaml` and the operator."""
    dashboard: bool = False
    """Render a ConfigMap with the dashboard of runs, which Grafana's sidecar loads."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of both by which they are selected, such as `release: kube-prometheus-stack`."""


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class Access(Section):
    """How the dashboard is reached from outside the Kubernetes cluster."""

    shorthand = "way"

    way: Literal["auto", "service-proxy", "in-cluster", "url"] = "auto"
    """`auto`: in-cluster when inside, else the API server's service proxy, else `url`."""
    url: str | None = Field(default=None, pattern=r"^https?://")
    """Address of an Ingress or Route, `https://`, or of `kubectl port-forward`, `http://localhost:8265`; required when `way` is `url`. It gets the cluster's token."""
    allow_http: bool = False
    """Send the token unencrypted to a `url` that begins with `http://`: who sees the traffic can then use the cluster. Addresses of this machine (`http://localhost`) need no permission."""

    @field_validator("way", mode="before")
    @classmethod
    def _no_port_forward(cls, value: Any) -> Any:
        if value == "port-forward":
            raise ValueError(
                "port-forward is no longer supported: run `kubectl port-forward"
                " svc/NAME-head-svc 8265`, and set access: {way: url, url: 'http://localhost:8265'}"
            )
        return value

    @property
    def sends_in_clear(self) -> bool:
        """Return whether the token would go over a network unencrypted, without permission."""
        parts = urlsplit(self.url or "")
        return parts.scheme == "http" and not self.allow_http and not _is_loopback(parts.hostname)


class IdlePolicy(Section):
    """When the cluster is suspended, and when it ends."""

    suspend_after_s: float | None = Field(default=None, gt=0)
    """Suspend the cluster after this many seconds without a run; `null`: never."""
    time_to_live_s: float | None = Field(default=None, gt=0)
    """End the cluster this many seconds after its start, even while runs are active; `null`: never."""
    at_end: Literal["suspend", "delete"] = "suspend"
    """What happens at the end of its time to live."""
    drain_s: float = Field(default=300.0, ge=0)
    """Seconds that active runs have to save a checkpoint at the end of the time to live."""


class KubeRayFields(AnyTemplate):
    """The fields of a KubeRay template, without the rules between them."""

    name: str = Field(default="kuberay", pattern=CLUSTER_NAME_PATTERN)
    """Name of the cluster and of its RayCluster: a lower-case letter, then letters, digits and dashes. Default: the file's name."""
    provider: Literal["kuberay"] = "kuberay"
    """Provider of the cluster: `kuberay` creates a RayCluster resource for KubeRay's operator."""
    contexts: tuple[str, ...] = ()
    """kubeconfig contexts to try in order; the first with enough free capacity is used. Empty: the current context."""
    namespace: str | None = None
    """Kubernetes namespace; `null`: that of the context."""
    ray_version: str = Field(default=SUPPORTED_RAY, pattern=r"^\d+\.\d+\.\d+$")
    """Ray's version in the image; this package works with one release of Ray only."""
    image: str
    """Container image with Ray and the training stack."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls the image."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with credentials of a private registry."""
    service_account: str | None = None
    """ServiceAccount of the pods; `null`: the default one of the namespace."""
    head: HeadSettings = Field(default_factory=HeadSettings)
    """The head pod."""
    worker_groups: tuple[WorkerGroup, ...] = ()
    """Groups of equal worker pods."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    """Ray's in-tree autoscaler."""
    storage: Storage = Field(default_factory=Storage)
    """Where results are stored beyond the life of the pods."""
    secrets: tuple[SecretRef, ...] = ()
    """Secrets for the head and the workers, by reference only."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of all Ray processes and of every run. Do not put secrets here."""
    after_start: tuple[tuple[str, ...], ...] = ()
    """Commands (lists of words, without a shell) to run in each container after its start, in order."""
    queue: str | None = None
    """LocalQueue of Kueue, which then decides when the cluster starts."""
    queue_priority: str | None = None
    """Kueue's WorkloadPriorityClass."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the RayCluster and its pods (team, cost centre)."""
    idle: IdlePolicy = Field(default_factory=IdlePolicy)
    """When it is suspended or ends."""
    network_policy: bool = False
    """Render a NetworkPolicy: only pods of this cluster reach each other's ports; the dashboard (it asks for the token) and the metrics stay open. Needs rule 12 of `rbac.yaml` and a network plug-in that enforces it."""
    metrics: Metrics = Field(default_factory=Metrics)
    """Objects for Prometheus and Grafana, and their addresses."""
    tls: Tls = Field(default_factory=Tls)
    """TLS between Ray's processes, if an authority is named: each pod gets a certificate of its own, which `openssl` of the image makes. The dashboard stays on http."""
    access: Access = Field(default_factory=Access)
    """How its dashboard is reached."""
    stop_wait_s: float = Field(default=120.0, ge=0)
    """Seconds that a stopped run has to save a checkpoint before its processes are killed."""
    warm: WarmSettings = Field(default_factory=WarmSettings)
    """The fork server of each node, which starts warm worker processes."""
    managed_by: str | None = None
    """KubeRay's `managedBy` (MultiKueue: `kueue.x-k8s.io/multikueue`); cannot be changed later."""
    raycluster: Raw = Field(default_factory=dict)
    """Merged into the RayCluster's `spec` last, for anything that has no field above."""
