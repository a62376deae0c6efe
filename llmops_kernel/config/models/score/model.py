"""The model of a score config, and the engine that it runs in."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.section import Section


class ScoredModel(Section):
    """The model whose answers are scored."""

    shorthand: ClassVar[str | None] = "id"

    id: str = ""
    """Base model or full fine-tune: a name of the catalogue, a folder, or a hub id. With `run` it
    is filled in at submission."""
    run: str = ""
    """A training run whose output is scored: its id, or `last`, the newest with an output."""
    adapter: str = ""
    """Folder or URL of a LoRA adapter of the model. With `run` it is filled in at submission."""
    revision: str | None = None
    """Revision of a hub id."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Number format of the weights. `auto` is `bfloat16` on GPUs and CPUs with instructions for it,
    else `float32`, which is several times faster there; the run says which at its start."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""


class EngineSettings(Section):
    """What generates the answers, and how many of them at once."""

    shorthand: ClassVar[str | None] = "type"

    type: str = "auto"
    """`vllm`, `transformers`, or `auto`: vLLM where it is installed, else Transformers."""
    replicas: int = Field(default=1, ge=1)
    """Copies of the model that work at the same time."""
    max_replicas: int | None = Field(default=None, ge=1)
    """Start up to this many copies while the cluster has free resources; default `replicas`."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one copy of the model is spread over; they must be in one node."""
    max_model_len: int | None = Field(default=None, ge=8)
    """Longest prompt with its answer, in tokens; default: what the model was made for, at most
    4,096."""
    batch_size: int = Field(default=64, ge=1)
    """Sequences that one copy works on at once."""
    keep_s: float = Field(default=600.0, ge=0)
    """Seconds that a loaded engine waits for the next job before it leaves the cluster."""
    gpu_memory: float = Field(default=0.9, gt=0, le=1)
    """Share of each GPU's memory that vLLM may take, 0..1."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the engine, as vLLM's `EngineArgs` names them."""
