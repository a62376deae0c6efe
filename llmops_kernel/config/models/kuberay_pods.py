"""What a cluster template says about pods: resources, volumes, secrets, placement."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from llmops_kernel.config.models.quantity import Quantity
from llmops_kernel.config.models.section import (
    ENV_PATTERN,
    GROUP_PATTERN,
    MOUNT_PATTERN,
    Price,
    Section,
)
from llmops_kernel.hardware.accelerators import HOSTS, HostType, find_host

_GIB = 2**30
HOST_SHARE = 0.92
"""Of a host's CPUs and memory that a pod asks for when its group gives none. The kubelet keeps
some back (GKE: 0.6 of 208 CPUs, 44 GiB of 1,872 GiB), the kernel about 1 % of the memory, and
DaemonSets (GPU driver, network, logs) want CPUs and memory as well. Asking for all would leave
the pod pending for ever."""
Raw = dict[str, Any]
"""A piece of Kubernetes' own YAML, checked by the API server only."""


class SecretRef(Section):
    """A Kubernetes Secret by reference: as environment variables or as files."""

    secret: str
    """Name of the Secret in the cluster's namespace."""
    key: str | None = None
    """One key of it; `null`: all keys."""
    env: str | None = Field(default=None, pattern=ENV_PATTERN)
    """Environment variable for the value of `key`. Without `key` leave it out: each key becomes a variable."""
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
    """A volume in every pod of the cluster."""

    mount: str = Field(pattern=MOUNT_PATTERN)
    """Absolute path in the pods."""
    claim: str | None = None
    """Name of a PersistentVolumeClaim (one that many pods may mount, when there are many)."""
    local_ssd: Quantity | None = None
    """Scratch space on the node's own disks (`emptyDir`) of at most this size."""
    host_path: str | None = Field(default=None, pattern=MOUNT_PATTERN)
    """A folder of the host. Many clusters forbid it."""
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
    """Which nodes pods can run on."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Raw, ...] = ()
    """Tolerations, as Kubernetes spells them."""
    affinity: Raw = Field(default_factory=dict)
    """Node and pod (anti-)affinity, as Kubernetes spells it."""
    one_per_node: bool = False
    """No two pods of this group on one node (anti-affinity by host name)."""
    topology_spread: tuple[Raw, ...] = ()
    """Topology spread constraints; without a labelSelector the group's own pods are counted."""
    priority_class: str | None = None
    """PriorityClass of the pods."""


class PodSettings(Placement):
    """What the head and the workers have in common."""

    image: str | None = None
    """Container image; `null`: the template's."""
    cpus: Quantity | None = None
    """CPUs of a pod, as request and limit."""
    memory: Quantity | None = None
    """Memory of a pod, as request and limit."""
    disk: Quantity | None = None
    """Ephemeral storage of a pod, as request and limit."""
    shm: Quantity | None = None
    """Size of /dev/shm, where Ray's object store and NCCL live; `null`: 30 % of `memory`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of this group only. Do not put secrets here."""
    volumes: tuple[Volume, ...] = ()
    """Volumes of this group only."""
    price: Price = Field(default_factory=Price)
    """Price of one pod. Give one to the head and to every worker group, in one currency; `kwh` is the same for all. A pod keeps the price that it was started with."""
    pod: Raw = Field(default_factory=dict)
    """Merged into the pod's `spec` last, for anything that has no field above."""


class HeadSettings(PodSettings):
    cpus: Quantity = "4"
    """CPUs of the head pod."""
    memory: Quantity = "16Gi"
    """Memory of the head pod."""
    num_cpus: int = Field(default=0, ge=0)
    """CPUs that Ray can schedule on the head; 0 keeps training off it."""


class WorkerGroup(PodSettings):
    """A KubeRay worker group: equal pods."""

    name: str = Field(pattern=GROUP_PATTERN)
    """Name of the group: lower-case letters, digits and dashes."""
    host_type: str | None = None
    """Kind of machine (`onprem-4xa100`, `a3-highgpu-8g`, ...): a pod takes a whole machine, and gets the CPUs, memory and GPUs that the machine can give to pods unless they are set below."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs of a pod."""
    gpu_resource: str = "nvidia.com/gpu"
    """Kubernetes' name of the accelerator."""
    replicas: int = Field(default=1, ge=0)
    """Replicas at the start: a pod each, or `num_hosts` pods each."""
    min_replicas: int = Field(default=0, ge=0)
    """Lowest number of replicas for the autoscaler."""
    max_replicas: int | None = Field(default=None, ge=0)
    """Highest number of replicas for the autoscaler and `scale`; `null`: `replicas`."""
    num_hosts: int = Field(default=1, ge=1)
    """Pods that make one replica (multi-host accelerators)."""
    num_cpus: int | None = Field(default=None, ge=0)
    """CPUs that Ray can schedule on a pod; `null`: those of the pod."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that Ray can schedule on a pod; `null`: those of the pod. Logical GPUs are possible for tests."""
    idle_timeout_s: int | None = Field(default=None, ge=1)
    """Seconds after which the autoscaler removes an idle pod; `null`: the value of the cluster."""
    spot: bool = False
    """Use spot machines, which the cloud can reclaim: tolerates the spot taints and selects spot nodes."""

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
            raise ValueError("set host_type, or cpus and memory")
        if self.host is not None and self.host.num_cpus is None and self.cpus is None:
            raise ValueError(f"the CPUs of {self.host_type} are not known: set cpus")
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
