"""The template of a local cluster, and the models of templates by provider."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, Field

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.section import (
    NAME_PATTERN,
    AnyTemplate,
    MetricsPages,
    Price,
    WarmSettings,
)
from llmops_kernel.errors import MissingDependencyError

__all__ = ["TEMPLATES", "AnyTemplate", "ClusterTemplate", "model_of"]

_SMALLEST_STORE_BYTES = 75 * 1024 * 1024  # Ray's own minimum


def _variable(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name) is None:
        raise ValueError(
            "must be names of variables such as MY_DATA, or MY_* for all that begin so"
        )
    return name


class ClusterTemplate(AnyTemplate):
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
    price: Price = Field(default_factory=Price)
    """Price of this machine. A cluster keeps the price that it was started with."""
    warm: WarmSettings = Field(default_factory=WarmSettings)
    """The fork server of each node, which starts warm worker processes."""
    metrics: MetricsPages = Field(default_factory=MetricsPages)
    """The team's Grafana and Prometheus."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the Ray processes and of every run. Do not put secrets here."""
    inherit_env: tuple[Annotated[str, AfterValidator(_variable)], ...] = ()
    """More variables that runs inherit from your shell, by name or as `MY_*`. Of the others they
    get those for models, data, devices, trackers and proxies."""

    tls: bool = False
    """Ray's processes speak TLS with each other and ask for a certificate, which `openssl` makes
    anew at each start. The dashboard stays on http."""

    def effect(self) -> list[str]:
        cpus = "all CPUs" if self.num_cpus is None else counted(self.num_cpus, "CPU")
        gpus = "all GPUs" if self.num_gpus is None else counted(self.num_gpus, "GPU")
        price = f" The machine costs {self.price.words}." if self.price.words else ""
        return [
            f"Cluster {self.name}: a Ray head on this machine with {cpus} and {gpus},"
            f" {self.warm.words}.{price}",
            f"A stopped run has {self.stop_wait_s:g} s to save its checkpoint.",
        ]


class TemplateModels(Mapping[str, type[AnyTemplate]]):
    """The model of a template by its `provider`; a provider of another package adds its own."""

    def __init__(self, models: Mapping[str, str | type[AnyTemplate]]) -> None:
        self._models = dict(models)

    def add(self, provider: str, model: str | type[AnyTemplate] = AnyTemplate) -> None:
        """Add a model, or its `package.module:Class`, which is imported when it is needed."""
        self._models[provider] = model

    def remove(self, provider: str) -> None:
        self._models.pop(provider, None)

    def __getitem__(self, provider: str) -> type[AnyTemplate]:
        model = self._models[provider]
        if isinstance(model, str):
            module, _, attribute = model.partition(":")
            try:
                model = cast("type[AnyTemplate]", getattr(import_module(module), attribute))
            except (ImportError, AttributeError) as error:
                raise MissingDependencyError(
                    f"Templates of provider {provider!r} cannot be loaded from"
                    f" {self._models[provider]}: {error}",
                    remedy="install the package that provides it",
                ) from error
            self._models[provider] = model
        return model

    def __contains__(self, provider: object) -> bool:
        return provider in self._models

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)


TEMPLATES: Final = TemplateModels(
    {
        "local": ClusterTemplate,
        "kuberay": "llmops_kernel.config.models.kuberay:KubeRayTemplate",
    }
)


def model_of(data: Mapping[str, Any]) -> type[AnyTemplate]:
    """Return the model for a template's data; the local one if the provider is unknown."""
    provider = data.get("provider")
    known = isinstance(provider, str) and provider in TEMPLATES
    return TEMPLATES[str(provider)] if known else ClusterTemplate
