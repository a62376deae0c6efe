"""The interactive loop of LLM training on Ray.

Names load on first use, so a Ray worker that imports this package does not pull in
Jupyter, and a notebook does not pull in torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmops_kernel.version import VERSION as __version__

if TYPE_CHECKING:
    from llmops_kernel.api import (
        Cluster,
        Run,
        attach,
        bench,
        check,
        cluster,
        clusters,
        compare,
        data_preview,
        demo,
        doctor,
        down,
        guard,
        init,
        init_cluster_template,
        mine,
        plan,
        plan_grid,
        query,
        render,
        runs,
        schema,
        up,
    )
    from llmops_kernel.config.models.train import TrainingConfig
    from llmops_kernel.errors import ConfigError, LLMOpsError, RunFailedError


_EXPORTS = {
    "Cluster": "llmops_kernel.api",
    "ConfigError": "llmops_kernel.errors",
    "LLMOpsError": "llmops_kernel.errors",
    "Run": "llmops_kernel.api",
    "RunFailedError": "llmops_kernel.errors",
    "TrainingConfig": "llmops_kernel.config.models.train",
    "attach": "llmops_kernel.api",
    "bench": "llmops_kernel.api",
    "check": "llmops_kernel.api",
    "cluster": "llmops_kernel.api",
    "clusters": "llmops_kernel.api",
    "compare": "llmops_kernel.api",
    "data_preview": "llmops_kernel.api",
    "demo": "llmops_kernel.api",
    "doctor": "llmops_kernel.api",
    "down": "llmops_kernel.api",
    "guard": "llmops_kernel.api",
    "init": "llmops_kernel.api",
    "init_cluster_template": "llmops_kernel.api",
    "mine": "llmops_kernel.api",
    "plan": "llmops_kernel.api",
    "plan_grid": "llmops_kernel.api",
    "query": "llmops_kernel.api",
    "render": "llmops_kernel.api",
    "runs": "llmops_kernel.api",
    "schema": "llmops_kernel.api",
    "up": "llmops_kernel.api",
}

__all__ = [
    "Cluster",
    "ConfigError",
    "LLMOpsError",
    "Run",
    "RunFailedError",
    "TrainingConfig",
    "__version__",
    "attach",
    "bench",
    "check",
    "cluster",
    "clusters",
    "compare",
    "data_preview",
    "demo",
    "doctor",
    "down",
    "guard",
    "init",
    "init_cluster_template",
    "mine",
    "plan",
    "plan_grid",
    "query",
    "render",
    "runs",
    "schema",
    "up",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics `%%train` and `%llmops`: `%load_ext llmops_kernel`."""
    import_module("llmops_kernel.magics.load").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics: `%unload_ext llmops_kernel`."""
    import_module("llmops_kernel.magics.load").unload(shell)
