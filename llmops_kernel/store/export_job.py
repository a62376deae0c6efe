"""An export as a client hands it to the process that does the work."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Target = Literal["merged", "vllm", "gguf", "triton", "hub"]
Precision = Literal["auto", "float32", "bfloat16"]
GgufType = Literal["f32", "f16", "bf16", "q8_0"]
MANIFEST = "llmops-export.json"
"""File in each exported folder, written last: --force replaces only a folder that has it."""


class ModelSource(BaseModel):
    """The result of a run, and the model that it was trained from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["adapter", "model"]
    location: str
    """Folder or URL."""
    base: str = ""
    """Catalogue name, folder or hub id; empty while only the adapter's own config names it."""
    revision: str | None = None
    trust_remote_code: bool = False
    roots: tuple[str, ...] = ()
    """Folders in which a relative path of `base` is looked up."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype that the run computed in; answers are compared in it."""
    auto_class: str = "AutoModelForCausalLM"
    """The class of Transformers that loads it: another one for labels, rewards and vectors."""


class CardFacts(BaseModel):
    """Facts of a run's record and journal; None or empty where unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    name: str
    kind: str
    created: str
    """Date and time of the submission, UTC."""
    base: str
    method: str = ""
    """Such as `lora`; empty for a script."""
    settings: dict[str, Any] = {}
    """Method, optimizer and training settings by dotted name."""
    data: tuple[dict[str, Any], ...] = ()
    """`role`, `source`, `sha256_16` and `rows` of each data source."""
    steps: int | None = None
    total_steps: int | None = None
    state: str = ""
    last_loss: float | None = None
    metrics: dict[str, float] = {}
    metrics_step: int | None = None
    metrics_rows: int | None = None
    device: str = ""
    workers: int | None = None
    config_hash: str = ""
    code_hash: str = ""
    git: str = ""
    versions: dict[str, str] = {}


class ExportJob(BaseModel):
    """An export. Carries no secret: tokens come from the environment or Hugging Face's store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Target
    source: ModelSource
    card: CardFacts
    folder: str
    """The scratch folder to write; the client renames it when all of it is there."""
    final: str
    """Where the folder will be, for messages and commands."""
    name: str
    """Name under which a server offers the model."""
    dtype: Precision = "auto"
    """Dtype of the merged weights; `auto` is that of the base model's files."""
    gguf_type: GgufType = "f16"
    keep_adapter: bool = False
    """Hand over base and adapter instead of merged weights."""
    prompts: tuple[str, ...] = ()
    """Rendered prompts for the check of answers; general ones are added where there are few."""
    check: int = 4
    """How many prompts to answer before and after merging; 0 for none."""
    max_new_tokens: int = 24
    max_length: int | None = None
    """Longest sequence in tokens that the run trained on."""
    repo: str | None = None
    url: str | None = None
    private: bool = True
    replace: bool = False
    """Upload over what an earlier export put there."""


class ExportLine(BaseModel):
    """A line that the process prints: a step that begins, the end, or a failure."""

    kind: Literal["progress", "done", "failed"]
    text: str = ""
    remedy: str = ""
    error: str = "ExportError"
    """Class name of `llmops_kernel.errors`."""
    notes: tuple[str, ...] = ()
    command: str = ""
    """Command that uses the result; can be copied."""
    location: str = ""
    """URL or hub address, where it is not the folder."""
