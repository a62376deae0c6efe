"""The data of a run: rows read, formatted, tokenised, packed; separate for train and eval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DataError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import (
    Example,
    Packed,
    Prompt,
    Tokenised,
    pack,
    prompts,
    tokenise,
)
from llmops_kernel.train.data.sources import Row, load_rows
from llmops_kernel.train.hooks import Hooks


@dataclass(frozen=True)
class Dataset:
    rows: Sequence[Row]
    train: Sequence[Example | Packed]
    eval: Sequence[Example]
    prompts: Sequence[Prompt]
    """Empty unless answers are to be generated."""
    num_tokens: int
    """Tokens of one epoch, padding apart."""


def load_dataset(
    config: TrainingConfig, *, tokenizer: Any, hooks: Hooks, context: WorkerContext
) -> Dataset:
    """Load the data. Raises `DataError` and `HookError`, each with the row."""
    data = config.data
    roots = (context.workspace, *context.fallback_workspaces)
    rows = load_rows(data.train, roots=roots, split=data.train_split, limit=data.max_rows)
    tokenised = tokenise(rows, tokenizer=tokenizer, data=data, hooks=hooks)
    _warn(tokenised, data.train, config, context)
    examples = tokenised.examples
    train: Sequence[Example | Packed] = (
        pack(examples, max_length=data.max_length) if data.packing else examples
    )
    _check_enough(len(train), config)
    held_out, generated = _load_eval(config, roots, tokenizer, hooks)
    return Dataset(
        rows=rows,
        train=train,
        eval=held_out,
        prompts=generated,
        num_tokens=sum(len(example.input_ids) for example in examples),
    )


def _load_eval(
    config: TrainingConfig, roots: Sequence[Path], tokenizer: Any, hooks: Hooks
) -> tuple[list[Example], list[Prompt]]:
    data = config.data
    if data.eval is None:
        return [], []
    rows = load_rows(data.eval, roots=roots, split=data.eval_split, limit=data.max_eval_rows)
    examples = tokenise(rows, tokenizer=tokenizer, data=data, hooks=hooks).examples
    wanted = config.evaluation.generate
    generated = prompts(rows, tokenizer=tokenizer, data=data, hooks=hooks) if wanted else []
    return examples, generated


def _warn(
    tokenised: Tokenised, source: str, config: TrainingConfig, context: WorkerContext
) -> None:
    if tokenised.num_cut:
        context.emit(
            WarningEvent(
                message=f"{tokenised.num_cut} of {len(tokenised.examples)} rows of {source} are"
                f" longer than max_length={config.data.max_length} and were truncated.",
                remedy="raise data.max_length if the truncated part matters",
            )
        )
    if tokenised.num_empty:
        context.emit(
            WarningEvent(
                message=f"{tokenised.num_empty} rows of {source} have no token that counts for"
                f" the loss and were skipped.",
                remedy="raise data.max_length, or check for empty answers",
            )
        )


def _check_enough(num_sequences: int, config: TrainingConfig) -> None:
    workers = config.parallelism.num_workers
    if num_sequences < workers:
        raise DataError(
            f"{num_sequences} sequence(s) cannot be divided among {workers} workers.",
            remedy=f"set parallelism.num_workers={max(1, num_sequences)}, give more rows"
            + (", or turn data.packing off" if config.data.packing else ""),
        )
