"""The sections of a training config, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, field_validator

from llmops_kernel.config.models.section import RemovedField, Section

RowFormat = Literal["auto", "chat", "sharegpt", "prompt_completion", "alpaca", "text"]
"""Formats of rows to imitate; the rows of another objective have that objective's."""
MOST_WEIGHT = 1000


class TrainSource(Section):
    """One of several sources of training rows."""

    shorthand = "path"

    path: str
    """Where its rows are: a file, a folder, a pattern, a hub dataset id or a URL."""
    weight: float = Field(default=1.0, gt=0, le=MOST_WEIGHT)
    """How often each of its rows is seen in one epoch: 1 once, 2 twice, 0.5 half of the rows, and
    the other half in the next epoch."""
    format: RowFormat | None = None
    """Format of its rows; `null`: that of `data.format`."""
    columns: dict[str, str] | None = None
    """Columns of its rows under other names; `null`: those of `data.columns`."""
    train_split: str | None = None
    """Its split, if it is a hub dataset; `null`: that of `data.train_split`."""

    @property
    def words(self) -> str:
        """`a.jsonl`, or `a.jsonl (weight 2)`."""
        return self.path if self.weight == 1 else f"{self.path} (weight {self.weight:g})"


def _written_as(value: Any) -> str:
    return "sources" if isinstance(value, list | tuple) else "path"


# Told apart by what is written: else a mistake in one source is reported for the text as well.
TrainData = Annotated[
    Annotated[str, Tag("path")] | Annotated[tuple[TrainSource, ...], Tag("sources")],
    Discriminator(_written_as),
]


Dtype = Literal["auto", "float32", "bfloat16"]
CATALOGUE = ("SmolLM2-135M-Instruct", "tiny-llama", "tiny-qwen2")
"""Built-in model names; `models/catalogue.py` makes them."""


class ModelConfig(Section):
    shorthand = "id"
    renamed: ClassVar[Mapping[str, str]] = {"attn_implementation": "attention"}

    id: str = ""
    """A name of the built-in catalogue (`SmolLM2-135M-Instruct`, `tiny-llama`, `tiny-qwen2`), a local folder, or a Hugging Face hub id."""
    revision: str | None = None
    """Hub branch, tag or commit; only for hub ids."""
    run: str | None = None
    """Begin with the result of this run instead, by its id or `last`: an adapter is trained further by `lora`, and merged first by `full`. The submission sets `id` to its folder."""
    step: int | None = Field(default=None, ge=1)
    """Begin with the checkpoint of `run` at this step instead of its result."""
    adapter: Literal["continue", "merge"] = "continue"
    """What becomes of an adapter that `run` or `id` names, with `lora` and `qlora`: it is trained further, or merged into the weights below a new one. The merged model is written into the run's folder as `base`."""
    dtype: Dtype = "auto"
    """Number format that the model computes in; trained weights and optimizer states are kept in float32 with each. `auto` is `bfloat16` on GPUs that have it (compute capability 8.0 and later), else `float32`; the run says which at its start."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "auto"
    """Attention kernel, as Transformers names it. `auto` is PyTorch's `sdpa` where the model has it, else `eager`. Flash attention needs a GPU and the package `flash-attn` (extra `kernels`)."""
    trust_remote_code: bool = False
    """Run Python code from the model's repository."""


class DataConfig(Section):
    shorthand = "train"

    train: TrainData
    """Training rows: a JSONL, JSON, CSV, text, Parquet or Arrow file, a folder of them or a pattern such as `data/*.parquet`, a folder saved by `datasets`, a hub dataset id, or an `s3://`, `gs://`, `az://`, `hdfs://` URL. Or a list of several, such as `[a.jsonl, {path: b.jsonl, weight: 2}]`: `weight` is how often each row of a source is seen in one epoch; the rows of all are shuffled together, drawn with `seed`, on any number of workers alike."""
    eval: str | None = None
    """Evaluation rows, from the same kinds of source. Required for evaluation."""
    train_split: str = "train"
    """Split to train on, of a hub dataset or of a folder whose folders or files are named after splits, such as `train.jsonl` beside `test.jsonl`."""
    eval_split: str = "validation"
    """Split to evaluate on, when `eval` is a hub id or such a folder."""
    format: RowFormat = "auto"
    """`chat`: a `messages` list (or `prompt` and `completion`); `sharegpt`: `conversations` with `from` and `value`; `prompt_completion`; `alpaca`: `instruction`, `output` and, if given, `input`; `text`: a `text` field; `auto` takes the first of these that a row has. Chats may have `system`, `tools`, `history`, `weight` and `label` besides."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns of your data under other names: the field of the format, then the column, for example `{instruction: question, output: answer}`."""
    loss_on: Literal["answer", "all"] = "answer"
    """For chat rows: compute the loss on the assistant's answers only, or on all tokens. Text rows always use all tokens."""
    max_length: int = Field(default=512, ge=8)
    """Longest sequence in tokens; longer chats are truncated and counted in a warning, longer texts as `long_texts` says."""
    long_texts: Literal["split", "cut"] = "split"
    """Texts longer than `max_length`, of training and of evaluation: `split` uses all of a text, as consecutive sequences of `max_length` tokens that do not overlap; `cut` uses its beginning only. Chats are always truncated."""
    packing: bool = False
    """Put several rows into one sequence of `max_length`; attention stays inside each row."""
    max_rows: int | None = Field(default=None, ge=1)
    """Use only this many rows of the training data, of several sources of each; for a quick test."""
    max_eval_rows: int | None = Field(default=None, ge=1)
    """Use only this many rows of the evaluation data."""
    shuffle: bool = True
    """Shuffle the training rows each epoch with `seed`; `false`: in their order, one source after another."""
    streaming: Literal["auto"] | bool = "auto"
    """Read and tokenise the training rows while the model trains, for data that does not fit in memory. Each worker reads a share of its own; rows are shuffled by parts of the files and among 32 MiB of them. `auto`: for JSONL, text, Parquet and Arrow files and folders saved by `datasets` of more than 64 MiB, unless `packing` or `max_rows` is set."""
    on_error: Literal["stop", "check", "skip"] = "stop"
    """A row that cannot be read or has not the shape of `format`: `stop` fails the run and names the file and the row, of streamed data when it comes to that row; `check` reads all rows of streamed data before the first step, once until a file changes, and names the broken ones; `skip` leaves them out and counts them."""

    _prefixes: tuple[str, str] = PrivateAttr(default=("", ""))

    @property
    def prefixes(self) -> tuple[str, str]:
        """What an objective puts before the first text of a row, and before the others."""
        return self._prefixes

    @property
    def is_mixture(self) -> bool:
        """Whether `train` is a list of sources."""
        return not isinstance(self.train, str)

    @property
    def sources(self) -> tuple[TrainSource, ...]:
        """The sources of training rows, each with its format, columns and split."""
        given = (TrainSource(path=self.train),) if isinstance(self.train, str) else self.train
        # Copied: the rows of an objective have a format that no config may name.
        return tuple(
            one.model_copy(
                update={
                    "format": one.format or self.format,
                    "columns": self.columns if one.columns is None else one.columns,
                    "train_split": one.train_split or self.train_split,
                }
            )
            for one in given
        )

    def of(self, source: TrainSource) -> DataConfig:
        """Return the settings of one of `sources`, as if it were the only one."""
        return self.model_copy(
            update={
                "train": source.path,
                "format": source.format,
                "columns": source.columns,
                "train_split": source.train_split,
            }
        )

    @property
    def train_words(self) -> str:
        """The sources in a sentence: `a.jsonl (weight 2) and 3 more`."""
        first, *rest = self.sources
        if len(rest) == 1:
            return f"{first.words} and {rest[0].words}"
        return f"{first.words} and {len(rest)} more" if rest else first.words


class OptimizerConfig(Section):
    type: Literal["adamw", "adamw_8bit", "adafactor", "muon"] = "adamw"
    """`adamw` keeps two float32 numbers for each trained weight, `adamw_8bit` (bitsandbytes) two of 8 bits, `adafactor` two for each row and column, `muon` one for each weight of a matrix, and `adamw`'s for the rest."""
    learning_rate: float = Field(default=2e-4, gt=0)
    """Peak learning rate."""
    lr_scheduler_type: Literal[
        "linear", "cosine", "constant", "constant_with_warmup", "warmup_stable_decay"
    ] = "cosine"
    """Learning rate schedule after the warm-up, as Transformers names it."""
    decay_share: float = Field(default=0.2, gt=0, le=1)
    """Share of all steps, at the end, in which `warmup_stable_decay` lowers the learning rate to 0."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of steps in which the learning rate rises from zero. Limited to `max_steps` - 1."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's decoupled weight decay."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's beta 1."""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's beta 2."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Clip the global norm of the gradients to this value; 0 turns clipping off."""


class TrainingSection(Section):
    micro_batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = 4
    """Sequences in one forward and backward pass of one worker. `auto`: the largest that fits and divides a worker's share of `global_batch_size`, tried out with the longest rows before the first step, and kept for later runs of the same settings on the same machines."""
    global_batch_size: int = Field(default=16, ge=1)
    """Sequences in one optimizer step over all workers; a multiple of `micro_batch_size * num_workers`; with `auto`, of `num_workers`."""
    num_epochs: float = Field(default=1.0, gt=0)
    """Passes over the training rows; ignored when `max_steps` is set."""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after this many optimizer steps."""
    max_failures: int = Field(default=1, ge=0)
    """How many times Ray Train restarts the workers from the last checkpoint after a worker has died."""
    on_oom: Literal["adapt", "stop"] = "adapt"
    """When memory runs out: `adapt` goes on with the next setting that needs less (half the micro batch at the same global batch, then gradient checkpointing, then optimizer states in host memory), which is no failure of `max_failures`; `stop` ends the run FAILED."""
    freeze: tuple[str, ...] = ()
    """Weights that are not trained, by their names in the model: `[embed_tokens, "layers.0.*"]`; `*` stands for any letters, and a part of a name is enough."""
    train_only: tuple[str, ...] = ()
    """The only weights that are trained, by their names as in `freeze`."""
    on_nan: Literal["stop", "skip", "continue"] = "stop"
    """When the loss or the gradient is NaN or infinite: `stop` ends the run FAILED without exporting the model; `skip` does not apply that optimizer step (ZeRO skips such steps in any case) and gives up after 10 in a row; `continue` trains on. A run whose last step or last evaluation is not finite is FAILED in each case."""


class EvaluationConfig(Section):
    every_steps: int | None = Field(default=None, ge=1)
    """Evaluate every this many steps; `null`: only as set by `at_start` and `at_end`."""
    at_start: bool = False
    """Evaluate before the first step, to measure the improvement. This delays the first step."""
    at_end: bool = True
    """Evaluate after the last step."""
    micro_batch_size: int | None = Field(default=None, ge=1)
    """Sequences in one evaluation pass of one worker; `null`: the value of `training`."""
    generate: bool = False
    """Also generate the model's answer to each evaluation prompt (greedy) and pass the answers to the hook `compute_metrics`."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Longest generated answer in tokens."""
    samples: int = Field(default=5, ge=0, le=100)
    """With `generate`: number of evaluation rows whose answers each evaluation keeps, the same rows each time; 0: none."""
    prompts: tuple[str, ...] = Field(default=(), max_length=100)
    """Own prompts, answered (greedy) and kept at each evaluation; they need no evaluation rows. With a chat template each is a user's message, for `data.format: text` the beginning of a text."""


class CheckpointConfig(Section):
    shorthand = "every_steps"

    every_steps: int | None = Field(default=None, ge=1)
    """Save a checkpoint every this many steps; `null`: only when the run is stopped."""
    keep: int = Field(default=2, ge=1)
    """Number of recent checkpoints to keep."""


class OutputConfig(Section):
    shorthand = "url"

    url: str | None = None
    """Folder or `s3://`, `gs://`, `hdfs://` URL for the result; `null`: the folder of the run."""
    merge_adapter: bool = False
    """Also write the full model with the adapter merged in (LoRA only)."""


class HooksConfig(Section):
    shorthand = "file"

    file: str | None = None
    """Python file of the workspace that may define `format_example(row)`, `build_model(config)`, `compute_metrics(predictions, references, rows)`, `score_row(prediction, reference, row)`, `callbacks()`."""


Auto = bool | Literal["auto"]


class PerformanceConfig(Section):
    shorthand = "mode"
    removed: ClassVar[Mapping[str, RemovedField]] = {
        "logits": RemovedField(
            "auto", "delete it; performance.mode=off computes the logits of all tokens"
        ),
        "matmul": RemovedField("auto", "delete it; PyTorch chooses the library of matrix products"),
    }

    mode: Literal["auto", "off"] = "auto"
    """What the fields below that are `auto` do: `auto` chooses what is safe on the device, with losses that differ by rounding only, such as logits at tokens that the loss counts and nowhere else; `off` trains as a plain Transformers Trainer does. The run's journal states what was chosen and why."""
    group_by_length: Auto = "auto"
    """Put rows of like length into one micro batch, which needs less padding. Each optimizer step still sees the same rows. `auto`: if there are several micro batches in a step."""
    padding_free: bool = False
    """Join the rows of a micro batch into one sequence without padding; attention stays inside each row. Saves time with flash attention; not needed with `data.packing`."""
    fused_loss: bool = False
    """Compute output layer and loss in one kernel of `liger-kernel`, without storing the logits. Needs a GPU and the package's extra `kernels`."""
    compile: bool = False
    """Compile the model with `torch.compile`. The first step then takes minutes."""
    tf32: bool = False
    """Compute float32 products of GPUs (Ampere and later) in TF32, which has fewer digits."""

    @field_validator("mode", mode="before")
    @classmethod
    def _yaml_off(cls, value: Any) -> Any:
        """YAML reads `off` as false."""
        return "off" if value is False else value

    @property
    def automatic(self) -> bool:
        return self.mode == "auto"

    def describe(self) -> str:
        """Return a few words for `llmops check`: the mode, and what differs from it."""
        own = [
            f"{name}={str(value).lower()}"
            for name, value in self.model_dump(exclude={"mode"}).items()
            if value not in ("auto", False)
        ]
        return ", ".join([self.mode, *own])


MOST_PROFILED = 100
"""Steps of one profile: one of a large model leaves megabytes of events a step."""


class ProfileConfig(Section):
    """PyTorch's profiler over some steps; `llmops profile RUN` asks for others meanwhile."""

    steps: tuple[int, int] | None = None
    """First and last step, as `[10, 13]`: a timeline for Perfetto, the operators that take most time, on GPUs a snapshot of the memory. These steps are slower, and count in no figure of speed."""

    @field_validator("steps")
    @classmethod
    def _in_order(cls, steps: tuple[int, int] | None) -> tuple[int, int] | None:
        if steps is not None and not 1 <= steps[0] <= steps[1] < steps[0] + MOST_PROFILED:
            raise ValueError(
                f"must be the first and the last of at most {MOST_PROFILED} steps, as [10, 13]"
            )
        return steps
