"""The interactive loop of LLM training on Ray.

Names load on first use, so a Ray worker that imports this package does not pull in
Jupyter, and a notebook does not pull in torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmops_kernel.api import (
        Cluster,
        Run,
        attach,
        cluster,
        clusters,
        compare,
        down,
        runs,
        up,
    )
    from llmops_kernel.config.train import TrainingConfig
    from llmops_kernel.errors import ConfigError, LLMOpsError, RunFailedError

__version__ = "0.1.0"

_EXPORTS = {
    "Cluster": "llmops_kernel.api",
    "ConfigError": "llmops_kernel.errors",
    "LLMOpsError": "llmops_kernel.errors",
    "Run": "llmops_kernel.api",
    "RunFailedError": "llmops_kernel.errors",
    "TrainingConfig": "llmops_kernel.config.train",
    "attach": "llmops_kernel.api",
    "cluster": "llmops_kernel.api",
    "clusters": "llmops_kernel.api",
    "compare": "llmops_kernel.api",
    "down": "llmops_kernel.api",
    "runs": "llmops_kernel.api",
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
    "cluster",
    "clusters",
    "compare",
    "down",
    "runs",
    "up",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _AlsoAFunction(ModuleType):
    """A subpackage whose name is a public function as well: `llmops.runs()`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = getattr(import_module("llmops_kernel.api"), self.__name__.rpartition(".")[2])
        return function(*args, **kwargs)


class _Face(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # The import system puts each subpackage here when it is first imported.
        if name in _EXPORTS and isinstance(value, ModuleType):
            value.__class__ = _AlsoAFunction
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
