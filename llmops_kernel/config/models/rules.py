"""Rules between fields: what each section allows, but a run could not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llmops_kernel.config.models.parallelism import rules as parallelism_rules
from llmops_kernel.config.models.performance import rules as speed_rules
from llmops_kernel.config.models.section import Broken
from llmops_kernel.config.models.train_fields import TrainingFields
from llmops_kernel.config.names import (
    ALIASES,
    OWNED,
    OWNED_PREFIXES,
    TRACKERS,
    TRAINING_ARGUMENTS,
)
from llmops_kernel.config.problems import (
    MOST_SUGGESTED,
    MOST_UNKNOWN,
    closest,
    did_you_mean,
    listed,
)
from llmops_kernel.config.row_formats import FIELDS

_MOST_PROMPT_CHARACTERS = 10_000


def broken_rules(config: TrainingFields) -> list[Broken]:
    return [broken for rule in _RULES for broken in rule(config)]


def advice(config: TrainingFields) -> list[Broken]:
    """Return what the run changes in these values; each can be trained with."""
    warmup, steps = config.optimizer.warmup_steps, config.training.max_steps
    if warmup == config.warmup_steps:
        return []
    return [
        Broken(
            "optimizer.warmup_steps",
            f"{warmup} warm-up steps do not fit into a run of max_steps={steps}:"
            f" {config.warmup_steps} are used",
            f"set optimizer.warmup_steps={(steps or 0) // 10}",
            ("training.max_steps",),
        )
    ]


def _batch_sizes(config: TrainingFields) -> Iterator[Broken]:
    micro, workers = config.training.micro_batch_size, config.parallelism.num_workers
    total, per_pass = config.training.global_batch_size, micro * workers
    if total % per_pass:
        nearest = max(1, round(total / per_pass)) * per_pass
        yield Broken(
            "training.global_batch_size",
            f"{total} is not a multiple of micro_batch_size={micro} x num_workers={workers}"
            f" = {per_pass}",
            f"try global_batch_size={nearest}",
            ("training.micro_batch_size", "parallelism.num_workers"),
        )


def _columns(config: TrainingFields) -> Iterator[Broken]:
    data = config.data
    given = {"data.columns": data.columns}
    if not isinstance(data.train, str):
        own = ((f"data.train.{n}.columns", one.columns) for n, one in enumerate(data.train))
        given |= {path: columns for path, columns in own if columns is not None}
    for path, name in ((path, name) for path, columns in given.items() for name in columns):
        if name not in FIELDS:
            yield Broken(
                path,
                f"{name} is not a field of any format",
                did_you_mean(name, FIELDS) or f"the fields are {', '.join(FIELDS)}",
            )


def _sources(config: TrainingFields) -> Iterator[Broken]:
    if not config.data.train:
        yield Broken("data.train", "names no training rows", "name a file, such as train.jsonl")


def _streaming(config: TrainingFields) -> Iterator[Broken]:
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


def _evaluation(config: TrainingFields) -> Iterator[Broken]:
    evaluation, data = config.evaluation, config.data
    if data.eval is None:
        wanted = {
            "every_steps": evaluation.every_steps is not None and not evaluation.prompts,
            "generate": evaluation.generate,
        }
        instead = {"every_steps": " or evaluation.prompts to a list", "generate": ""}
        for name in (name for name, asked in wanted.items() if asked):
            yield Broken(
                f"evaluation.{name}",
                "needs evaluation rows, and data.eval is not set",
                f"set data.eval to a file or hub id{instead[name]}, or remove evaluation.{name}",
                ("data.eval",),
            )
    for number, text in enumerate(evaluation.prompts, start=1):
        if not text.strip() or len(text) > _MOST_PROMPT_CHARACTERS:
            found = f"has {len(text):,} characters" if text.strip() else "is empty"
            yield Broken(
                "evaluation.prompts",
                f"prompt {number} {found}",
                f"write 1 to {_MOST_PROMPT_CHARACTERS:,} characters, or remove it",
            )
    if evaluation.generate and data.format == "text":
        yield Broken(
            "evaluation.generate",
            "plain text has no prompt and no answer to generate",
            "use chat rows (data.format=chat), or set evaluation.generate=false",
            ("data.format",),
        )


def _adapter(config: TrainingFields) -> Iterator[Broken]:
    if config.output.merge_adapter and config.method.saves != "adapter":
        yield Broken(
            "output.merge_adapter",
            f"method {config.method.type} has no adapter to merge",
            "set method.type=lora, or merge_adapter=false",
            ("method.type",),
        )


def _trackers(config: TrainingFields) -> Iterator[Broken]:
    for name in config.report_to:
        if name not in TRACKERS:
            yield Broken(
                "report_to",
                f"Transformers has no tracker {name!r}",
                did_you_mean(name, TRACKERS) or f"known: {listed(TRACKERS, limit=20)}",
            )


def _arguments(config: TrainingFields) -> Iterator[Broken]:
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


_RULES: tuple[Callable[[TrainingFields], Iterator[Broken]], ...] = (
    _batch_sizes,
    parallelism_rules.offload,
    parallelism_rules.workers,
    parallelism_rules.quantised,
    parallelism_rules.merging,
    _columns,
    _sources,
    _streaming,
    _evaluation,
    speed_rules.attention,
    speed_rules.performance,
    _adapter,
    _trackers,
    _arguments,
)
