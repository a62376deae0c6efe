"""The training config: one file that fully describes a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import Field, SerializeAsAny

from llmops_kernel.config.models.methods import LoraMethod, MethodConfig
from llmops_kernel.config.models.objectives import ObjectiveConfig, SftObjective
from llmops_kernel.config.models.parallelism import (
    DdpStrategy,
    ParallelismConfig,
    placement_rules,
)
from llmops_kernel.config.models.section import (
    NAME_PATTERN,
    Broken,
    MonitorConfig,
    Packages,
    RunConfig,
)
from llmops_kernel.config.models.sections import (
    CATALOGUE,
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    HooksConfig,
    ModelConfig,
    OptimizerConfig,
    OutputConfig,
    PerformanceConfig,
    ProfileConfig,
    TrainingSection,
)
from llmops_kernel.config.models.tracking import ReportTo, TrackingConfig, tracker_rules
from llmops_kernel.config.names import (
    ACCEPTED,
    ALIASES,
    OWNED,
    OWNED_PREFIXES,
    TRAINING_ARGUMENTS,
)
from llmops_kernel.config.problems import (
    MOST_SUGGESTED,
    MOST_UNKNOWN,
    closest,
    did_you_mean,
)
from llmops_kernel.config.row_formats import fields_of


class TrainingConfig(RunConfig):
    """Everything a training run needs; the same file gives the same run."""

    aliases = ACCEPTED

    name: str = Field(default="train", pattern=NAME_PATTERN)
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""
    seed: int = Field(default=42, ge=0)
    """Seed of new weights, shuffling and dropout."""
    model: ModelConfig
    data: DataConfig
    objective: SerializeAsAny[ObjectiveConfig] = SftObjective()
    method: SerializeAsAny[MethodConfig] = LoraMethod()
    parallelism: SerializeAsAny[ParallelismConfig] = DdpStrategy()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingSection = TrainingSection()
    performance: PerformanceConfig = PerformanceConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    output: OutputConfig = OutputConfig()
    hooks: HooksConfig = HooksConfig()
    report_to: ReportTo = ()
    """Trackers that get the run's numbers: `comet_ml`, `mlflow`, `tensorboard`, `trackio`,
    `wandb`; several at once."""
    tracking: TrackingConfig = TrackingConfig()
    """How the run appears in these trackers."""
    training_arguments: dict[str, Any] = Field(default_factory=dict)
    """Other `TrainingArguments` of Transformers by name, for what has no field in this file."""
    packages: Packages = ()
    """Packages that each node installs for this run, once, as pip takes them: `trl==1.16`."""
    requirements: str | None = None
    """A requirements file with such packages, relative to the workspace."""
    profile: ProfileConfig = ProfileConfig()
    monitor: MonitorConfig = MonitorConfig()
    """What is measured and watched while the run is under way."""

    @property
    def worker_processes(self) -> int:
        return self.parallelism.num_workers

    @property
    def model_id(self) -> str:
        return self.model.id

    def with_rows_read(self) -> TrainingConfig:
        """Return the config with `data` as the objective reads its rows."""
        if not self.objective.rows:
            return self
        return self.model_copy(update={"data": self.objective.read_as(self.data)})

    @property
    def micro_batch_size(self) -> int:
        """Sequences in one pass of one worker; 1 where `auto` was not resolved yet."""
        size = self.training.micro_batch_size
        return 1 if size == "auto" else size

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro batches behind one optimizer step on one worker."""
        per_pass = self.micro_batch_size * self.parallelism.num_workers
        return self.training.global_batch_size // per_pass

    @property
    def warmup_steps(self) -> int:
        """`optimizer.warmup_steps`, limited so that the last step has the full rate."""
        wanted, steps = self.optimizer.warmup_steps, self.training.max_steps
        return wanted if steps is None else min(wanted, steps - 1)

    def broken_rules(self) -> list[Broken]:
        return [broken for rule in _RULES for broken in rule(self)]

    def advice(self) -> list[Broken]:
        """Return what the run changes in these values; each can be trained with."""
        return list(_warmup(self))


_MOST_PROMPT_CHARACTERS = 10_000


# --- Rules: what each section allows, but a run could not do ---


def _warmup(config: TrainingConfig) -> Iterator[Broken]:
    warmup, steps = config.optimizer.warmup_steps, config.training.max_steps
    if warmup != config.warmup_steps:
        yield Broken(
            "optimizer.warmup_steps",
            f"{warmup} warm-up steps do not fit into a run of max_steps={steps}:"
            f" {config.warmup_steps} are used",
            f"set optimizer.warmup_steps={(steps or 0) // 10}",
            ("training.max_steps",),
        )


def _start(config: TrainingConfig) -> Iterator[Broken]:
    model = config.model
    if not model.id and model.run is None:
        yield Broken(
            "model.id",
            "is missing",
            f"give a name of the built-in catalogue ({', '.join(CATALOGUE)}), a folder or a hub id;"
            " or the run to begin with: model.run=last",
        )
    if model.step is not None and model.run is None:
        yield Broken(
            "model.step",
            "is of a run, and model.run names none",
            "set model.run, or remove model.step",
            ("model.run",),
        )
    if model.adapter == "merge" and config.output.url and not config.output.merge_adapter:
        yield Broken(
            "model.adapter",
            "the merged model stays in the run's folder, and output.url would have the new adapter"
            " alone",
            "set output.merge_adapter=true, or leave output.url out",
            ("output.url", "output.merge_adapter"),
        )
    training = config.training
    if training.freeze and training.train_only:
        yield Broken(
            "training.train_only",
            "names what is trained, and training.freeze what is not",
            "set one of the two",
            ("training.freeze",),
        )


def _optimizer(config: TrainingConfig) -> Iterator[Broken]:
    kind, parallelism = config.optimizer.type, config.parallelism
    if kind == "adamw":
        return
    if kind == "muon" and parallelism.sharded:
        yield Broken(
            "optimizer.type",
            f"muon needs whole matrices, and {parallelism.strategy} shards what is updated",
            "set parallelism.strategy=ddp, or optimizer.type=adamw",
            ("parallelism.strategy",),
        )
    elif parallelism.offload_optimizer:
        yield Broken(
            "optimizer.type",
            f"DeepSpeed's optimizer for host memory is AdamW, not {kind}",
            "set optimizer.type=adamw, or parallelism.offload_optimizer=false",
            ("parallelism.offload_optimizer",),
        )
    if config.training_arguments.get("optim"):
        yield Broken(
            "training_arguments.optim",
            f"names an optimizer, and so does optimizer.type={kind}",
            "remove one of the two",
            ("optimizer.type",),
        )


def _batch_sizes(config: TrainingConfig) -> Iterator[Broken]:
    micro, workers = config.micro_batch_size, config.parallelism.num_workers
    total, per_pass = config.training.global_batch_size, micro * workers
    objective, is_auto = config.objective, config.training.micro_batch_size == "auto"
    if total % per_pass:
        nearest = max(1, round(total / per_pass)) * per_pass
        yield Broken(
            "training.global_batch_size",
            f"{total} is not a multiple of num_workers={workers}"
            if is_auto
            else f"{total} is not a multiple of micro_batch_size={micro} x num_workers={workers}"
            f" = {per_pass}",
            f"try global_batch_size={nearest}",
            ("training.micro_batch_size", "parallelism.num_workers"),
        )
    if is_auto and objective.shares_batch:
        yield Broken(
            "training.micro_batch_size",
            f"auto would let the memory decide the loss: {objective.type} compares the rows of a"
            " micro batch with each other",
            "set a number, such as micro_batch_size=4",
            ("objective.type",),
        )


def _columns(config: TrainingConfig) -> Iterator[Broken]:
    data = config.data
    given = {"data.columns": data.columns}
    if not isinstance(data.train, str):
        own = ((f"data.train.{n}.columns", source.columns) for n, source in enumerate(data.train))
        given |= {path: columns for path, columns in own if columns is not None}
    objective = config.objective
    fields = fields_of(objective.rows or "auto")
    of = f"objective {objective.type}" if objective.rows else "any format"
    for path, name in ((path, name) for path, columns in given.items() for name in columns):
        if name not in fields:
            yield Broken(
                path,
                f"{name} is not a field of {of}",
                did_you_mean(name, fields) or f"the fields are {', '.join(fields)}",
            )


def _sources(config: TrainingConfig) -> Iterator[Broken]:
    if not config.data.train:
        yield Broken("data.train", "names no training rows", "name a file, such as train.jsonl")


def _streaming(config: TrainingConfig) -> Iterator[Broken]:
    data = config.data
    if data.streaming is not True:
        return
    for name, is_set in (("packing", data.packing), ("max_rows", data.max_rows is not None)):
        if is_set:
            yield Broken(
                "data.streaming",
                f"streamed rows are trained on as they come, and data.{name} is set",
                f"remove data.{name}, or set streaming=false to read all rows into memory",
                (f"data.{name}",),
            )
    for name in ("dataloader_num_workers", "accelerator_config", "ignore_data_skip"):
        if config.training_arguments.get(name):
            yield Broken(
                f"training_arguments.{name}",
                "does not work with data.streaming, which distributes the rows among the workers",
                f"remove {name}, or set data.streaming=false",
                ("data.streaming",),
            )


def _evaluation(config: TrainingConfig) -> Iterator[Broken]:
    evaluation, data = config.evaluation, config.data
    if data.eval is None:
        needs_rows = {
            "every_steps": evaluation.every_steps is not None and not evaluation.prompts,
            "generate": evaluation.generate,
        }
        instead = {"every_steps": " or evaluation.prompts to a list", "generate": ""}
        for name in (name for name, is_set in needs_rows.items() if is_set):
            yield Broken(
                f"evaluation.{name}",
                "needs evaluation rows, and data.eval is not set",
                f"set data.eval to a file or hub id{instead[name]}, or remove evaluation.{name}",
                ("data.eval",),
            )
    for number, text in enumerate(evaluation.prompts, start=1):
        if not text.strip() or len(text) > _MOST_PROMPT_CHARACTERS:
            fault = f"has {len(text):,} characters" if text.strip() else "is empty"
            yield Broken(
                "evaluation.prompts",
                f"prompt {number} {fault}",
                f"write 1 to {_MOST_PROMPT_CHARACTERS:,} characters, or remove it",
            )
    if evaluation.generate and data.format == "text":
        yield Broken(
            "evaluation.generate",
            "plain text has no prompt and no answer to generate",
            "use chat rows (data.format=chat), or set evaluation.generate=false",
            ("data.format",),
        )


def _objective(config: TrainingConfig) -> Iterator[Broken]:
    """What only the imitation of chats and texts has, and what an objective needs."""
    objective, data = config.objective, config.data
    if not objective.worker_side:
        return
    formats = {
        f"data.train.{number}.format": source.format
        for number, source in enumerate(() if isinstance(data.train, str) else data.train)
        if source.format is not None
    }
    refused = {
        "data.format": data.format != "auto",
        **{path: text != "auto" for path, text in formats.items()},
        "data.packing": data.packing,
        "data.streaming": data.streaming is True,
        "data.loss_on": data.loss_on != "answer",
        "performance.padding_free": config.performance.padding_free,
        "performance.fused_loss": config.performance.fused_loss,
        "evaluation.generate": config.evaluation.generate,
        "evaluation.prompts": bool(config.evaluation.prompts) and objective.output != "text",
    }
    for path in (path for path, is_set in refused.items() if is_set):
        yield Broken(
            path,
            f"is for objective sft, and this one is {objective.type}, which {objective.summary}",
            f"remove {path}, or set objective.type=sft",
            ("objective.type",),
        )
    if objective.type == "kto" and config.method.saves == "model":
        yield Broken(
            "method.type",
            "kto compares with the model as it was before, for which the adapter is turned off, and"
            f" {config.method.type} has none",
            "set method.type=lora, or learn from pairs: objective.type=dpo",
            ("objective.type",),
        )
    if objective.type == "kto" and config.training.micro_batch_size == 1:
        yield Broken(
            "training.micro_batch_size",
            "kto compares the answers of a micro batch with each other, and there is one",
            "set micro_batch_size=2 or more",
            ("objective.type",),
        )


def _adapter(config: TrainingConfig) -> Iterator[Broken]:
    if config.output.merge_adapter and config.method.saves != "adapter":
        yield Broken(
            "output.merge_adapter",
            f"method {config.method.type} has no adapter to merge",
            "set method.type=lora, or merge_adapter=false",
            ("method.type",),
        )


def _arguments(config: TrainingConfig) -> Iterator[Broken]:
    unknown = 0
    for name in config.training_arguments:
        path = f"training_arguments.{name}"
        prefixed = (text for prefix, text in OWNED_PREFIXES.items() if name.startswith(prefix))
        owned = (OWNED.get(name) if name in TRAINING_ARGUMENTS else None) or next(prefixed, None)
        if owned:
            yield Broken(path, "cannot be set here", owned)
        elif name not in TRAINING_ARGUMENTS:
            unknown += 1
            if unknown <= MOST_UNKNOWN:
                like = _argument_like(name) if unknown <= MOST_SUGGESTED else ""
                yield Broken(path, "Transformers has no such training argument", like)
    if unknown > MOST_UNKNOWN:
        message = f"{unknown - MOST_UNKNOWN:,} more that Transformers does not have"
        yield Broken("training_arguments", message, "see Transformers' TrainingArguments")


def _argument_like(name: str) -> str:
    if name in ALIASES:
        return f"set {ALIASES[name]}"
    match = closest(name, TRAINING_ARGUMENTS)
    if match in OWNED:
        return OWNED[match]
    return f"did you mean {match}?" if match else "see Transformers' TrainingArguments"


def _quantised(config: TrainingConfig) -> Iterator[Broken]:
    """4-bit weights are packed bytes with scales beside them: a shard of them means nothing."""
    if config.method.type != "qlora":
        return
    parallelism = config.parallelism
    if "weights" in parallelism.sharded:
        yield Broken(
            "parallelism.strategy",
            f"{parallelism.strategy} shards the weights, and the 4-bit weights of qlora cannot be"
            " sharded here",
            "set parallelism.strategy=zero2, which shards all that qlora trains, or"
            " method.type=lora",
            ("method.type",),
        )
    if config.output.merge_adapter:
        yield Broken(
            "output.merge_adapter",
            "merging into 4-bit weights would round the adapter to 4 bits",
            "set merge_adapter=false; `llmops export` merges into the weights of the base model",
            ("method.type",),
        )


def _merging(config: TrainingConfig) -> Iterator[Broken]:
    is_sharded = "weights" in config.parallelism.sharded
    if config.output.merge_adapter and is_sharded and config.method.type == "lora":
        yield Broken(
            "output.merge_adapter",
            f"no worker has whole weights to merge into under {config.parallelism.strategy}",
            "set merge_adapter=false; `llmops export` merges afterwards",
            ("parallelism.strategy",),
        )


def _attention(config: TrainingConfig) -> Iterator[Broken]:
    model = config.model
    if not model.attention.startswith("flash"):
        return
    if model.dtype not in ("bfloat16", "auto"):
        yield Broken(
            "model.attention",
            f"{model.attention} computes in bfloat16 only, and model.dtype is {model.dtype}",
            "set model.dtype=bfloat16, or attention=sdpa",
            ("model.dtype",),
        )
    if config.parallelism.use_gpu is False:
        yield Broken(
            "model.attention",
            f"{model.attention} needs a GPU, and parallelism.use_gpu is false",
            "set attention=sdpa",
            ("parallelism.use_gpu",),
        )


def _performance(config: TrainingConfig) -> Iterator[Broken]:
    performance, without_gpu = config.performance, config.parallelism.use_gpu is False
    for name, what in (("fused_loss", "Liger's fused loss"), ("tf32", "TF32")):
        if getattr(performance, name) and without_gpu:
            yield Broken(
                f"performance.{name}",
                f"{what} needs a GPU, and parallelism.use_gpu is false",
                f"set performance.{name}=false",
                ("parallelism.use_gpu",),
            )
    if performance.padding_free and config.data.packing:
        yield Broken(
            "performance.padding_free",
            "packed sequences have hardly any padding, and are trained as they are",
            "set performance.padding_free=false, or data.packing=false",
            ("data.packing",),
        )


_RULES: tuple[Callable[[TrainingConfig], Iterator[Broken]], ...] = (
    _start,
    _optimizer,
    _batch_sizes,
    lambda config: placement_rules(config.parallelism),
    _quantised,
    _merging,
    _columns,
    _sources,
    _streaming,
    _evaluation,
    _objective,
    _attention,
    _performance,
    _adapter,
    lambda config: tracker_rules(config.report_to),
    _arguments,
)
