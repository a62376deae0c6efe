"""Rules between fields: what each section allows alone but the run could not do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmops_kernel.config.names import (
    ALIASES,
    OWNED,
    OWNED_PREFIXES,
    TRACKERS,
    TRAINING_ARGUMENTS,
)
from llmops_kernel.config.problems import closest, did_you_mean, listed

if TYPE_CHECKING:
    from llmops_kernel.config.train import TrainingConfig


@dataclass(frozen=True)
class Broken:
    """A rule that the config breaks."""

    path: str
    """Where the user would change it."""
    message: str
    suggestion: str
    uses: tuple[str, ...] = ()
    """Further fields that the rule looked at; silent while one of them is itself wrong."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}; {self.suggestion}"


def broken_rules(config: TrainingConfig) -> list[Broken]:
    return [broken for rule in _RULES for broken in rule(config)]


def _batch_sizes(config: TrainingConfig) -> Iterator[Broken]:
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


def _offload(config: TrainingConfig) -> Iterator[Broken]:
    parallelism = config.parallelism
    if parallelism.offload_params and parallelism.strategy != "zero3":
        yield Broken(
            "parallelism.offload_params",
            f"only ZeRO-3 can keep weights in host memory, not {parallelism.strategy}",
            "set parallelism.strategy=zero3, or offload_params=false",
            ("parallelism.strategy",),
        )
    if parallelism.offload_optimizer and parallelism.strategy == "ddp":
        yield Broken(
            "parallelism.offload_optimizer",
            "only ZeRO can keep optimizer states in host memory, not ddp",
            "set parallelism.strategy=zero2, or offload_optimizer=false",
            ("parallelism.strategy",),
        )


def _evaluation(config: TrainingConfig) -> Iterator[Broken]:
    evaluation, data = config.evaluation, config.data
    if data.eval is None:
        wanted = {
            "every_steps": evaluation.every_steps is not None,
            "generate": evaluation.generate,
        }
        for name in (name for name, asked in wanted.items() if asked):
            yield Broken(
                f"evaluation.{name}",
                "needs held-out rows, and data.eval names none",
                f"set data.eval to a file or hub id, or leave evaluation.{name} out",
                ("data.eval",),
            )
    if evaluation.generate and data.format == "text":
        yield Broken(
            "evaluation.generate",
            "plain text has no prompt and no answer to generate",
            "use chat rows (data.format=chat), or set evaluation.generate=false",
            ("data.format",),
        )


def _attention(config: TrainingConfig) -> Iterator[Broken]:
    model = config.model
    if not model.attn_implementation.startswith("flash"):
        return
    if model.dtype != "bfloat16":
        yield Broken(
            "model.attn_implementation",
            f"{model.attn_implementation} computes in bfloat16 only, and model.dtype is"
            f" {model.dtype}",
            "set model.dtype=bfloat16, or attn_implementation=sdpa",
            ("model.dtype",),
        )
    if config.parallelism.use_gpu is False:
        yield Broken(
            "model.attn_implementation",
            f"{model.attn_implementation} needs a GPU, and parallelism.use_gpu is false",
            "set attn_implementation=sdpa",
            ("parallelism.use_gpu",),
        )


def _warmup(config: TrainingConfig) -> Iterator[Broken]:
    warmup, steps = config.optimizer.warmup_steps, config.training.max_steps
    if steps is not None and warmup >= steps:
        yield Broken(
            "optimizer.warmup_steps",
            f"{warmup} steps of warm-up in a run of max_steps={steps} never reach the full rate",
            f"try warmup_steps={steps // 10}",
            ("training.max_steps",),
        )


def _adapter(config: TrainingConfig) -> Iterator[Broken]:
    if config.output.merge_adapter and config.method.type != "lora":
        yield Broken(
            "output.merge_adapter",
            f"method {config.method.type} has no adapter to merge",
            "set method.type=lora, or merge_adapter=false",
            ("method.type",),
        )
    targets = config.method.target_modules
    if isinstance(targets, str) and re.fullmatch(r"\w+(\s*,\s*\w+)+", targets):
        yield Broken(
            "method.target_modules",
            "one text where several layers are meant",
            "write the list [" + ", ".join(re.split(r"[,\s]+", targets)) + "]",
        )


def _trackers(config: TrainingConfig) -> Iterator[Broken]:
    for name in config.report_to:
        if name not in TRACKERS:
            yield Broken(
                "report_to",
                f"Transformers has no tracker {name!r}",
                did_you_mean(name, TRACKERS) or f"known: {listed(TRACKERS, limit=20)}",
            )


def _arguments(config: TrainingConfig) -> Iterator[Broken]:
    for name in config.training_arguments:
        path = f"training_arguments.{name}"
        prefixed = (text for prefix, text in OWNED_PREFIXES.items() if name.startswith(prefix))
        owned = (OWNED.get(name) if name in TRAINING_ARGUMENTS else None) or next(prefixed, None)
        if owned:
            yield Broken(path, "is not set here", owned)
        elif name not in TRAINING_ARGUMENTS:
            yield Broken(path, "Transformers has no such training argument", _argument_like(name))


def _argument_like(name: str) -> str:
    if name in ALIASES:
        return f"set {ALIASES[name]}"
    match = closest(name, TRAINING_ARGUMENTS)
    if match in OWNED:
        return OWNED[match]
    return f"did you mean {match}?" if match else "see Transformers' TrainingArguments"


_RULES: tuple[Callable[[TrainingConfig], Iterator[Broken]], ...] = (
    _batch_sizes,
    _offload,
    _evaluation,
    _attention,
    _warmup,
    _adapter,
    _trackers,
    _arguments,
)
