"""The engines by name. An engine's class gets an EngineSpec and is an `Engine`."""

from __future__ import annotations

from importlib import import_module

from llmops_kernel.errors import ModelError
from llmops_kernel.score.engines.protocol import Engine, EngineSpec

_BUILT_IN = {
    "vllm": "llmops_kernel.score.engines.vllm.engine:VllmEngine",
    "transformers": "llmops_kernel.score.engines.transformers.engine:TransformersEngine",
}
NAMES = tuple(_BUILT_IN)


def load_engine(spec: EngineSpec) -> Engine:
    """Load a model. A type of `module:Class` is an engine of the user's. Raises ModelError."""
    path = _BUILT_IN.get(spec.type, spec.type)
    module, _, name = path.partition(":")
    if not name:
        raise ModelError(
            f"There is no engine {spec.type!r}.",
            remedy=f"use {', '.join(NAMES)}, auto, or a class of yours as module:Class",
        )
    engine: Engine = getattr(import_module(module), name)(spec)
    return engine
