"""The data of a run: rows read, formatted, tokenised, packed; separate for train and eval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.sections import DataConfig, TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DataError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.store import paths
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.answer_spans import template_warnings
from llmops_kernel.train.data.choice import is_streamed
from llmops_kernel.train.data.examples import (
    Example,
    Packed,
    Prompt,
    Tokenised,
    formatted,
    own_prompts,
    pack,
    prompts,
    tokenise,
    tokenise_formatted,
)
from llmops_kernel.train.data.mixture.rows import MixedRows, exact
from llmops_kernel.train.data.skipped import (
    Fields,
    field_warnings,
    named_source,
    skipped_warning,
    unused_columns_note,
)
from llmops_kernel.train.data.sources import Row, load_rows
from llmops_kernel.train.data.token_cache import KeyOf, TokenCache
from llmops_kernel.train.hooks import Hooks

if TYPE_CHECKING:
    from llmops_kernel.train.data.stream.dataset import StreamedRows
    from llmops_kernel.train.data.stream.open import Stream

_SAMPLED_ROWS = 256
"""Rows of several sources, from all over an epoch."""


@dataclass(frozen=True)
class Dataset:
    train: Sequence[Example | Packed] | StreamedRows
    sample: Sequence[Example | Packed]
    """Rows to look at before training, the same on all workers."""
    eval: Sequence[Example]
    prompts: Sequence[Prompt]
    """Prompts of evaluation rows; empty unless answers are to be generated."""
    own_prompts: Sequence[Prompt]
    """Prompts of the config, without an answer to compare with."""
    num_rows: int | None
    """None: not counted."""
    num_tokens: int | None
    """Tokens of one epoch, padding apart; None for streamed rows."""
    num_skipped: int = 0
    """Broken rows that were left out."""
    unused: tuple[str, ...] = ()
    """Columns of the training rows that are not used."""
    is_kept: bool = False
    """The training rows were tokenised by an earlier run."""
    stream: Stream | None = None
    """Set if the training rows are streamed."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return what made loading fast, for the journal."""
        return ("rows as tokenised by an earlier run",) if self.is_kept else ()

    @property
    def detail(self) -> str:
        """Return the details of its reading, for the journal."""
        return unused_columns_note(self.unused)


def load_dataset(
    config: TrainingConfig,
    *,
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
    division: int | None = None,
) -> Dataset:
    """Load the data. Raises `DataError` and `HookError`, each with the row.

    `division`: how streamed files were divided for the checkpoint that is resumed from.
    """
    data = config.data
    roots = (context.workspace, *context.fallback_workspaces)
    if is_streamed(data, roots):
        return _streamed(config, tokenizer, hooks, context, division)
    sources = [
        _source_rows(source, config, roots, tokenizer, hooks, context) for source in data.sources
    ]
    if any(source.tokenised.num_chats for source in sources):
        num_apart = sum(source.tokenised.num_apart for source in sources)
        _warn_of_template(tokenizer, context, num_apart=num_apart)
    train, sample = _together(config, [source.sequences for source in sources])
    _check_enough(len(train), config)
    held_out, generated = _load_eval(config, roots, tokenizer, hooks, context)
    user_prompts = own_prompts(config.evaluation.prompts, tokenizer=tokenizer, data=data)
    return Dataset(
        train=train,
        sample=sample,
        eval=held_out,
        prompts=generated,
        own_prompts=user_prompts,
        num_rows=sum(source.in_epoch(source.tokenised.num_rows) for source in sources),
        num_tokens=sum(source.in_epoch(source.num_tokens) for source in sources),
        num_skipped=sum(len(source.tokenised.broken) for source in sources),
        unused=tuple(sorted({name for source in sources for name in source.tokenised.unused})),
        is_kept=any(source.tokenised.is_kept for source in sources),
    )


@dataclass(frozen=True)
class _SourceRows:
    """The rows of one source, tokenised."""

    weight: float
    tokenised: Tokenised
    sequences: Sequence[Example | Packed]

    @property
    def num_tokens(self) -> int:
        return sum(len(example.input_ids) for example in self.tokenised.examples)

    def in_epoch(self, count: int) -> int:
        """Return so many of all rows or tokens of the source as an epoch has of them."""
        return round(exact(self.weight) * count)


def _source_rows(
    source: TrainSource,
    config: TrainingConfig,
    roots: Sequence[Path],
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
) -> _SourceRows:
    data = config.data.of(source)
    with named_source(source.path):
        tokenised = _tokenised(data, source.path, roots, tokenizer, hooks, context)
    _warn(tokenised, source.path, config, context)
    for warning in field_warnings(source.path, tokenised.uses, tokenizer):
        context.emit(warning)
    if tokenised.broken:
        context.emit(skipped_warning(source.path, len(tokenised.broken), tokenised.broken))
    examples = tokenised.examples
    packed = pack(examples, max_length=data.max_length) if data.packing else examples
    return _SourceRows(source.weight, tokenised, packed)


def _together(
    config: TrainingConfig, sources: Sequence[Sequence[Example | Packed]]
) -> tuple[Sequence[Example | Packed], Sequence[Example | Packed]]:
    """Return the training rows, and some to look at."""
    data = config.data
    if not data.is_mixture:
        return sources[0], sources[0]
    weights = [source.weight for source in data.sources]
    mixed = MixedRows(sources, weights, seed=config.seed, shuffle=data.shuffle)
    return mixed, mixed.spread(_SAMPLED_ROWS)


def _tokenised(
    data: DataConfig,
    source: str,
    roots: Sequence[Path],
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
) -> Tokenised:
    """Return the training rows, from the token cache where an earlier run has put them there."""
    cache = TokenCache(context.cache or paths.cache())
    keys = KeyOf(source, roots=roots, limit=data.max_rows, data=data, tokenizer=tokenizer)
    has_hook = hooks.format_example is not None
    key = None if has_hook else keys.key()
    if key and (cached := cache.read(key)):
        return cached
    broken: list[str] | None = [] if data.on_error == "skip" else None
    rows = load_rows(
        source,
        roots=roots,
        split=data.train_split,
        limit=data.max_rows,
        broken=broken,
        nulls=not has_hook,
    )
    fields = Fields()
    formatted_rows: Iterable[Row | DataError] = formatted(
        rows, data=data, hooks=hooks, fields=fields
    )
    if has_hook:  # What a user's code makes of a row is not known before it was called.
        formatted_rows = list(formatted_rows)
        key = keys.key_of(formatted_rows, broken or ())
        if key and (cached := cache.read(key)):
            return replace(cached, uses=fields.uses, unused=fields.unused)
    tokenised = tokenise_formatted(formatted_rows, tokenizer=tokenizer, data=data)
    tokenised = replace(tokenised, num_rows=len(rows), broken=(*(broken or ()), *tokenised.broken))
    tokenised = replace(tokenised, uses=fields.uses, unused=fields.unused)
    if key and context.local_rank == 0 and (has_hook or keys.unchanged()):
        cache.write(key, tokenised)
    return tokenised


def _streamed(
    config: TrainingConfig,
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
    division: int | None,
) -> Dataset:
    from llmops_kernel.train.data.stream.open import open_stream

    stream = open_stream(
        config, tokenizer=tokenizer, hooks=hooks, context=context, division=division
    )
    if stream.has_chats:
        _warn_of_template(tokenizer, context)
    data = config.data
    roots = (context.workspace, *context.fallback_workspaces)
    held_out, generated = _load_eval(config, roots, tokenizer, hooks, context)
    user_prompts = own_prompts(config.evaluation.prompts, tokenizer=tokenizer, data=data)
    return Dataset(
        train=stream.rows,
        sample=stream.sample,
        eval=held_out,
        prompts=generated,
        own_prompts=user_prompts,
        num_rows=stream.num_rows,
        num_tokens=None,
        unused=stream.unused,
        stream=stream,
    )


def _load_eval(
    config: TrainingConfig,
    roots: Sequence[Path],
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
) -> tuple[list[Example], list[Prompt]]:
    # A skipped evaluation row would make the loss incomparable with that of other runs.
    data = config.data.model_copy(update={"on_error": "stop"})
    if data.eval is None:
        return [], []
    rows = load_rows(
        data.eval,
        roots=roots,
        split=data.eval_split,
        limit=data.max_eval_rows,
        nulls=hooks.format_example is None,
    )
    with named_source(data.eval):
        tokenised = tokenise(rows, tokenizer=tokenizer, data=data, hooks=hooks)
        with_answers = config.evaluation.generate
        generated = (
            prompts(rows, tokenizer=tokenizer, data=data, hooks=hooks) if with_answers else []
        )
    for warning in field_warnings(data.eval, tokenised.uses, tokenizer):
        context.emit(warning)
    return tokenised.examples, generated


def _warn(
    tokenised: Tokenised, source: str, config: TrainingConfig, context: WorkerContext
) -> None:
    if tokenised.num_cut:
        context.emit(
            WarningEvent(
                message=f"{tokenised.num_cut} of {tokenised.num_rows} rows of {source} are"
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


def _warn_of_template(tokenizer: Any, context: WorkerContext, *, num_apart: int = 0) -> None:
    """Say what to know of the chat template that makes texts of the training rows."""
    for warning in template_warnings(tokenizer):
        context.emit(warning)
    if num_apart:
        context.emit(
            WarningEvent(
                message=f"{counted(num_apart, 'chat')} with several answers became several"
                " sequences each: the chat template writes an earlier answer otherwise than the"
                " last one, so each is trained as the last.",
                remedy="nothing is lost, but an epoch has more sequences than rows",
            )
        )


def _check_enough(num_sequences: int, config: TrainingConfig) -> None:
    workers = config.parallelism.num_workers
    if num_sequences < workers:
        raise DataError(
            f"{counted(num_sequences, 'sequence')} cannot be divided among {workers} workers.",
            remedy=f"set parallelism.num_workers={max(1, num_sequences)}, give more rows"
            + (", or turn data.packing off" if config.data.packing else ""),
        )
