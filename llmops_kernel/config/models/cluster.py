"""The template of a local cluster, and the models of templates by provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.section import NAME_PATTERN, Config, WarmSettings

_SMALLEST_STORE_BYTES = 75 * 1024 * 1024  # Ray's own minimum


class ClusterTemplate(Config):
    """Everything `llmops.up` needs; the same file gives the same cluster."""

    name: str = Field(default="local", pattern=NAME_PATTERN)
    """Name of the cluster: lower-case letters, digits and dashes. Default: the file's name."""
    provider: Literal["local"] = "local"
    """Provider of the cluster: `local` starts a Ray head on this machine."""
    num_cpus: int | None = Field(default=None, ge=1)
    """CPUs that Ray can schedule; `null`: all CPUs of the machine."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that Ray can schedule; `null`: all GPUs of the machine."""
    object_store_memory_bytes: int | None = Field(default=None, ge=_SMALLEST_STORE_BYTES)
    """Size of Ray's shared object store in bytes; `null`: chosen from the machine's memory."""
    dashboard_port: int | None = Field(default=None, ge=1, le=65535)
    """Port of Ray's dashboard on the loopback address; `null`: any free port."""
    stop_wait_s: float = Field(default=120.0, ge=0)
    """Seconds that a stopped run has to save a checkpoint before its processes are killed."""
    warm: WarmSettings = Field(default_factory=WarmSettings)
    """The fork server of each node, which starts warm worker processes."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the Ray processes and of every run. Do not put secrets here."""


AnyTemplate = ClusterTemplate | KubeRayTemplate
TEMPLATES: Final[dict[str, type[AnyTemplate]]] = {
    "local": ClusterTemplate,
    "kuberay": KubeRayTemplate,
}
"""The model of a template by its `provider`."""


def model_of(data: Mapping[str, Any]) -> type[AnyTemplate]:
    """Return the model for a template's data; the local one if the provider is unknown."""
    provider = data.get("provider")
    return (
        TEMPLATES.get(provider, ClusterTemplate) if isinstance(provider, str) else ClusterTemplate
    )
