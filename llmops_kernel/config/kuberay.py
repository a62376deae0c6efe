"""The cluster template of a KubeRay cluster: what its RayCluster is made of."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from llmops_kernel.config.kuberay_rules import broken_rules
from llmops_kernel.config.quantity import Quantity
from llmops_kernel.config.sections import (
    CLUSTER_NAME_PATTERN,
    ENV_PATTERN,
    GROUP_PATTERN,
    MOUNT_PATTERN,
    Section,
    WarmSettings,
)
from llmops_kernel.hardware.hosts import HOSTS, HostType, find_host

_GIB = 2**30
HOST_SHARE = 0.92
"""Of a host's CPUs and memory that a pod asks for when its group gives none. The kubelet keeps
some back (GKE: 0.6 of 208 CPUs, 44 GiB of 1,872 GiB), the kernel about 1 % of the memory, and
DaemonSets (GPU driver, network, logs) want CPUs and memory as well. Asking for all would leave
the pod pending for ever."""
Raw = dict[str, Any]
"""A piece of Kubernetes' own YAML, checked by the API server only."""


class SecretRef(Section):
    """A value of a Kubernetes Secret, by reference only: as variables or as files."""

    secret: str
    """Name of the Secret in the cluster's namespace."""
    key: str | None = None
    """One key of it; `null`: all keys."""
    env: str | None = Field(default=None, pattern=ENV_PATTERN)
    """Variable that gets the value of `key`; without `key`, leave it out: each key becomes one."""
    mount: str | None = Field(default=None, pattern=MOUNT_PATTERN)
    """Folder in which the keys appear as files."""
    optional: bool = False
    """Pods start without it when there is no such Secret."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.env and self.mount:
            raise ValueError("give `env` or `mount`, not both")
        if self.env and not self.key:
            raise ValueError("`env` needs `key`: which value of the Secret it gets")
        if self.key and not self.env and not self.mount:
            raise ValueError("`key` needs `env` (a variable) or `mount` (a folder)")
        return self


class Volume(Section):
    """A place for files in every pod of the cluster."""

    mount: str = Field(pattern=MOUNT_PATTERN)
    """Absolute path in the pods."""
    claim: str | None = None
    """Name of a PersistentVolumeClaim (one that many pods may mount, when there are many)."""
    local_ssd: Quantity | None = None
    """Scratch space on the node's own disks (`emptyDir`) of at most this size."""
    host_path: str | None = Field(default=None, pattern=MOUNT_PATTERN)
    """A folder of the host itself; many clusters forbid it."""
    memory: Quantity | None = None
    """A file system in memory of this size; counts as the pod's memory."""
    read_only: bool = False
    """Mount it for reading only."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.claim, self.local_ssd, self.host_path, self.memory)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give exactly one of claim, local_ssd, host_path and memory")
        return self


class Placement(Section):
    """On which nodes pods may run."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Raw, ...] = ()
    """Taints that are accepted, in Kubernetes' own spelling."""
    affinity: Raw = Field(default_factory=dict)
    """Node and pod (anti-)affinity, in Kubernetes' own spelling."""
    one_per_node: bool = False
    """No two pods of this group on one node (anti-affinity by host name)."""
    topology_spread: tuple[Raw, ...] = ()
    """Topology spread constraints; without a labelSelector the group's own pods are counted."""
    priority_class: str | None = None
    """PriorityClass of the pods."""


class PodSettings(Placement):
    """What head and workers have in common."""

    image: str | None = None
    """Container image; `null`: the template's."""
    cpus: Quantity | None = None
    """CPUs of a pod, requested and at most."""
    memory: Quantity | None = None
    """Main memory of a pod, requested and at most."""
    disk: Quantity | None = None
    """Ephemeral storage of a pod, requested and at most."""
    shm: Quantity | None = None
    """Size of /dev/shm, where Ray's object store and NCCL live; `null`: 30 % of `memory`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of this group only; no secrets here."""
    volumes: tuple[Volume, ...] = ()
    """Volumes of this group only."""
    pod: Raw = Field(default_factory=dict)
    """Merged into the pod's `spec` last: whatever the fields above cannot say."""


class HeadSettings(PodSettings):
    cpus: Quantity = "4"
    """CPUs of the head pod."""
    memory: Quantity = "16Gi"
    """Main memory of the head pod."""
    num_cpus: int = Field(default=0, ge=0)
    """CPUs that Ray may give to work on the head; 0 keeps training off it."""


class WorkerGroup(PodSettings):
    """Equal pods, as KubeRay has it."""

    name: str = Field(pattern=GROUP_PATTERN)
    """Name of the group: lower-case letters, digits and dashes."""
    host_type: str | None = None
    """Kind of machine (`onprem-4xa100`, `a3-highgpu-8g`, ...): a pod takes a whole one, and what it leaves to pods of its CPUs, memory and GPUs is the default below."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs of a pod."""
    gpu_resource: str = "nvidia.com/gpu"
    """Kubernetes' name of the accelerator."""
    replicas: int = Field(default=1, ge=0)
    """Pods at the start."""
    min_replicas: int = Field(default=0, ge=0)
    """The autoscaler goes no lower."""
    max_replicas: int | None = Field(default=None, ge=0)
    """The autoscaler and `scale` go no higher; `null`: `replicas`."""
    num_hosts: int = Field(default=1, ge=1)
    """Pods that make one replica (multi-host accelerators)."""
    num_cpus: int | None = Field(default=None, ge=0)
    """CPUs that Ray may give to work on a pod; `null`: those of the pod."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that Ray may give to work on a pod; `null`: those of the pod. Logical ones for tests."""
    idle_timeout_s: int | None = Field(default=None, ge=1)
    """The autoscaler removes a pod that is idle for so long; `null`: the cluster's."""
    spot: bool = False
    """Machines that may be taken away: tolerates the clouds' spot taints and asks for spot nodes."""

    @field_validator("host_type")
    @classmethod
    def _known_host(cls, value: str | None) -> str | None:
        if value is not None and find_host(value) is None:
            known = ", ".join(host.name for host in HOSTS)
            raise ValueError(f"no such host type; known: {known}")
        return value

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if not self.min_replicas <= self.replicas <= self.highest:
            raise ValueError(
                f"min_replicas <= replicas <= max_replicas does not hold:"
                f" {self.min_replicas}, {self.replicas}, {self.highest}"
            )
        if self.host_type is None and (self.cpus is None or self.memory is None):
            raise ValueError("give host_type, or cpus and memory")
        if self.host is not None and self.host.num_cpus is None and self.cpus is None:
            raise ValueError(f"the CPUs of {self.host_type} are not on record: give cpus")
        return self

    @property
    def host(self) -> HostType | None:
        return find_host(self.host_type) if self.host_type else None

    @property
    def highest(self) -> int:
        """`max_replicas`, whatever it is written as."""
        return self.replicas if self.max_replicas is None else self.max_replicas

    @property
    def pod_gpus(self) -> int:
        """GPUs of a pod: as given, else its host's."""
        if self.gpus is not None:
            return self.gpus
        return self.host.num_accelerators if self.host is not None else 0

    @property
    def pod_cpus(self) -> str:
        """CPUs of a pod: as given, else what its host leaves to pods."""
        if self.cpus is not None:
            return self.cpus
        assert self.host is not None
        assert self.host.num_cpus is not None
        return str(int(self.host.num_cpus * HOST_SHARE))

    @property
    def pod_memory(self) -> str:
        """Memory of a pod: as given, else what its host leaves to pods."""
        if self.memory is not None:
            return self.memory
        assert self.host is not None
        return f"{int(self.host.memory_bytes * HOST_SHARE) // _GIB}Gi"


class Autoscaling(Section):
    shorthand = "enabled"

    enabled: bool = False
    """Ray's autoscaler adds and removes worker pods between the groups' bounds."""
    idle_timeout_s: int = Field(default=300, ge=1)
    """A worker pod that is idle for so long is removed; never the head."""


class Storage(Section):
    """Where results survive the pods."""

    runs: str | None = None
    """Folder below a volume that all pods mount (`/mnt/team/llmops`), or a bucket URL (`s3://`, `gs://`): journals, checkpoints and outputs of runs; `null`: only in the pods, mirrored to whoever follows."""
    volumes: tuple[Volume, ...] = ()
    """Mounted by the head and by all workers."""


class Access(Section):
    """How the dashboard is reached from outside the Kubernetes cluster."""

    shorthand = "way"

    way: Literal["auto", "service-proxy", "in-cluster", "port-forward", "url"] = "auto"
    """`auto`: in-cluster when inside, else the API server's service proxy, else port-forward."""
    url: str | None = Field(default=None, pattern=r"^https?://")
    """Address of an Ingress or Route, with way `url`."""


class IdlePolicy(Section):
    """When the cluster is put to sleep, and when it ends for good."""

    suspend_after_s: float | None = Field(default=None, gt=0)
    """Suspend when nothing has run for so long; `null`: never."""
    time_to_live_s: float | None = Field(default=None, gt=0)
    """End it so long after its start, running or not; `null`: never."""
    at_end: Literal["suspend", "delete"] = "suspend"
    """What happens at the end of its time to live."""
    drain_s: float = Field(default=300.0, ge=0)
    """At the end of its time to live, running jobs get so long to save a checkpoint."""


class KubeRayTemplate(Section):
    """Everything `llmops.up` needs for a cluster on Kubernetes; the same file, the same cluster."""

    name: str = Field(default="kuberay", pattern=CLUSTER_NAME_PATTERN)
    """Name of the cluster and of its RayCluster: a lower-case letter, then letters, digits and dashes. Default: the file's name."""
    provider: Literal["kuberay"] = "kuberay"
    """Who makes the cluster: `kuberay` writes a RayCluster for KubeRay's operator."""
    contexts: tuple[str, ...] = ()
    """kubeconfig contexts to try in order; the first with room takes it. Empty: the current one."""
    namespace: str | None = None
    """Kubernetes namespace; `null`: that of the context."""
    ray_version: str = Field(default="2.60.0", pattern=r"^\d+\.\d+\.\d+$")
    """Ray's version in the image; must be the client's."""
    image: str
    """Container image with Ray and the training stack."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node fetches the image anew."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets that open a private registry."""
    service_account: str | None = None
    """ServiceAccount of the pods; `null`: the namespace's default one."""
    head: HeadSettings = Field(default_factory=HeadSettings)
    """The head pod."""
    worker_groups: tuple[WorkerGroup, ...] = ()
    """Groups of equal worker pods."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    """Ray's in-tree autoscaler."""
    storage: Storage = Field(default_factory=Storage)
    """Where results survive the pods."""
    secrets: tuple[SecretRef, ...] = ()
    """Secrets for head and workers, by reference only."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of all Ray processes, and so of every run; no secrets here."""
    after_start: tuple[tuple[str, ...], ...] = ()
    """Commands (lists of words, no shell) run in each container once it has started, in order."""
    queue: str | None = None
    """Kueue's LocalQueue; Kueue then decides when the cluster may run."""
    queue_priority: str | None = None
    """Kueue's WorkloadPriorityClass."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the RayCluster and its pods (team, cost centre)."""
    idle: IdlePolicy = Field(default_factory=IdlePolicy)
    """When it is suspended or ends."""
    access: Access = Field(default_factory=Access)
    """How its dashboard is reached."""
    stop_wait_s: float = Field(default=120.0, ge=0)
    """Seconds a stopped run has to save its checkpoint before its processes are killed."""
    warm: WarmSettings = Field(default_factory=WarmSettings)
    """The fork server of each node."""
    managed_by: str | None = None
    """KubeRay's `managedBy` (MultiKueue: `kueue.x-k8s.io/multikueue`); cannot be changed later."""
    raycluster: Raw = Field(default_factory=dict)
    """Merged into the RayCluster's `spec` last: whatever the fields above cannot say."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if broken := broken_rules(self):
            text = "\n".join(map(str, broken))
            raise PydanticCustomError("rules", "{text}", {"text": text, "broken": broken})
        return self
