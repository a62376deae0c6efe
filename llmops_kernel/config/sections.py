"""The sections of a training config: what one run needs to know, field by field."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Strategy = Literal["ddp", "zero1", "zero2", "zero3"]
Method = Literal["full", "lora"]
Dtype = Literal["float32", "bfloat16"]
_MODULE_PATTERN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
CLUSTER_NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,51}[a-z0-9])?$"
GROUP_PATTERN = r"^[a-z]([a-z0-9-]{0,45}[a-z0-9])?$"
MOUNT_PATTERN = r"^/[^:]*$"
ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
CATALOGUE = ("SmolLM2-135M-Instruct", "tiny-llama", "tiny-qwen2")
"""Built-in model names; `train/catalogue.py` makes them."""


class Section(BaseModel):
    """A frozen part of a config; unknown keys are refused.

    A subclass with `shorthand` may be written as a plain value: `method: lora`
    means `method: {type: lora}`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
    shorthand: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if cls.shorthand is not None and isinstance(value, str | int | float):
            return {cls.shorthand: value}
        return value


class ModelConfig(Section):
    shorthand = "id"

    id: str
    """A name of the built-in catalogue (`SmolLM2-135M-Instruct`, `tiny-llama`, `tiny-qwen2`), a local folder, or a Hugging Face hub id."""
    revision: str | None = None
    """Hub branch, tag or commit; only for hub ids."""
    dtype: Dtype = "float32"
    """Compute dtype. `bfloat16` is right on GPUs; a CPU without bf16 instructions is faster with `float32`."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Attention kernel, as Transformers spells it. Flash attention needs a GPU."""
    trust_remote_code: bool = False
    """Run Python code that ships inside the model's repository."""


class DataConfig(Section):
    shorthand = "train"

    train: str
    """Training rows: a JSONL or Parquet file, a folder saved by `datasets`, a hub dataset id, or an `s3://`, `gs://`, `hdfs://` URL."""
    eval: str | None = None
    """Held-out rows, same kinds of source. Needed for evaluation."""
    train_split: str = "train"
    """Split of a hub dataset to train on."""
    eval_split: str = "validation"
    """Split of a hub dataset to evaluate on, when `eval` is a hub id."""
    format: Literal["auto", "chat", "text"] = "auto"
    """`chat`: a `messages` list (or `prompt` and `completion`); `text`: a `text` field; `auto` looks at the first row."""
    loss_on: Literal["answer", "all"] = "answer"
    """For chat rows: count the loss on the assistant's words only, or on every token. Text rows always use every token."""
    max_length: int = Field(default=512, ge=8)
    """Longest sequence in tokens; longer rows are cut (and counted in a warning)."""
    packing: bool = False
    """Put several rows into one sequence of `max_length`; attention stays inside each row."""
    max_rows: int | None = Field(default=None, ge=1)
    """Use only the first rows of the training source; for a quick look."""
    max_eval_rows: int | None = Field(default=None, ge=1)
    """Use only the first rows of the evaluation source."""
    shuffle: bool = True
    """Shuffle the training rows each epoch with `seed`."""


class MethodConfig(Section):
    shorthand = "type"

    type: Method = "lora"
    """`full` trains every weight, `lora` low-rank adapters beside frozen weights."""
    r: int = Field(default=16, ge=1)
    """LoRA rank."""
    lora_alpha: int = Field(default=32, ge=1)
    """LoRA scale: the update is multiplied by `lora_alpha / r`."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input, 0..1."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Layers that get an adapter: `all-linear`, or names such as `[q_proj, v_proj]`."""


class ParallelismConfig(Section):
    shorthand = "strategy"

    strategy: Strategy = "zero2"
    """`ddp` copies everything; ZeRO shards optimizer (1), gradients (2), weights (3) over the workers, through DeepSpeed."""
    num_workers: int = Field(default=1, ge=1)
    """Ray Train workers: processes, one GPU each where there are GPUs."""
    cpus_per_worker: float | None = Field(default=None, gt=0)
    """CPUs reserved for a worker. Default: one; and all of the machine's shared out as threads on CPU."""
    use_gpu: bool | Literal["auto"] = "auto"
    """`auto` uses GPUs when the cluster has any."""
    offload_optimizer: bool = False
    """Keep optimizer states in host memory (ZeRO only)."""
    offload_params: bool = False
    """Keep weights in host memory (ZeRO-3 only)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more work."""


class OptimizerConfig(Section):
    learning_rate: float = Field(default=2e-4, gt=0)
    """Peak learning rate."""
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "cosine"
    """Shape after the warm-up, as Transformers names it."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from zero."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's decoupled weight decay."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's beta 1."""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's beta 2."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Clip the gradient's global norm; 0 turns clipping off."""


class TrainingSection(Section):
    micro_batch_size: int = Field(default=4, ge=1)
    """Sequences in one forward and backward pass on one worker."""
    global_batch_size: int = Field(default=16, ge=1)
    """Sequences behind one optimizer step, over all workers; a multiple of `micro_batch_size * num_workers`."""
    num_epochs: float = Field(default=1.0, gt=0)
    """Passes over the training rows; ignored when `max_steps` is set."""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after this many optimizer steps."""
    max_failures: int = Field(default=1, ge=0)
    """How often Ray Train restarts the workers from the last checkpoint after one dies."""


class EvaluationConfig(Section):
    every_steps: int | None = Field(default=None, ge=1)
    """Evaluate each so many steps; default only as `at_start` and `at_end` say."""
    at_start: bool = False
    """Evaluate before the first step, so that the gain is known; the first step comes later for it."""
    at_end: bool = True
    """Evaluate after the last step."""
    micro_batch_size: int | None = Field(default=None, ge=1)
    """Sequences in one evaluation pass on one worker; default the training value."""
    generate: bool = False
    """Also let the model write its answer to each held-out prompt (greedy) and hand them to the hook `compute_metrics`."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Longest generated answer in tokens."""


class CheckpointConfig(Section):
    shorthand = "every_steps"

    every_steps: int | None = Field(default=None, ge=1)
    """Save a checkpoint each so many steps; `null` saves only on stop."""
    keep: int = Field(default=2, ge=1)
    """How many of the newest checkpoints to keep."""


class OutputConfig(Section):
    shorthand = "url"

    url: str | None = None
    """Folder or `s3://`, `gs://`, `hdfs://` URL that receives the result; default the run's own folder."""
    merge_adapter: bool = False
    """Also write the full model with the adapter merged in (LoRA only)."""


class HooksConfig(Section):
    shorthand = "file"

    file: str | None = None
    """Python file of the workspace that may define `format_example(row)`, `build_model(config)`, `compute_metrics(predictions, references, rows)`, `callbacks()`."""


class WarmSettings(Section):
    """Whether worker processes are forked from one that has the training stack loaded."""

    enabled: bool = True
    """Start each node's fork server with the cluster; `false`: a fresh interpreter each time."""
    preload: tuple[Annotated[str, Field(pattern=_MODULE_PATTERN)], ...] = ()
    """Modules to load besides the training stack; never your own code, which may change."""
