"""The data of a run: rows read, formatted, tokenised, packed; separate for train and eval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.sections import DataConfig, TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DataError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.models.answer_spans import template_warnings
from llmops_kernel.store import paths
from llmops_kernel.train.context import WorkerContext
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
from llmops_kernel.train.data.mixture import MixedRows, exact
from llmops_kernel.train.data.skipped import (
    Fields,
    field_warnings,
    named_source,
    skipped_warning,
    unused_columns_note,
)
from llmops_kernel.train.data.sources import DataSources, Row, Source
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
    sources: DataSources,
    *,
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
    division: int | None = None,
) -> Dataset:
    """Load the data. Raises `DataError` and `HookError`, each with the row.

    `division`: how streamed files were divided for the checkpoint that is resumed from.
    """
    loader = _Loader(config, sources, tokenizer, hooks, context)
    return loader.open_stream(division) if sources.is_streamed else loader.load()


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


@dataclass(frozen=True)
class _Loader:
    """Loads the rows of a config, into memory or as a stream."""

    config: TrainingConfig
    sources: DataSources
    tokenizer: Any
    hooks: Hooks
    context: WorkerContext

    def load(self) -> Dataset:
        """Return the data with the training rows in memory."""
        config = self.config
        rows = [
            self._load_source(source, settings)
            for source, settings in zip(self.sources.train, config.data.sources, strict=True)
        ]
        if any(source.tokenised.num_chats for source in rows):
            self._warn_of_template(num_apart=sum(source.tokenised.num_apart for source in rows))
        train, sample = _together(config, [source.sequences for source in rows])
        _check_enough(len(train), config)
        examples, generated, own = self._evaluation()
        return Dataset(
            train=train,
            sample=sample,
            eval=examples,
            prompts=generated,
            own_prompts=own,
            num_rows=sum(source.in_epoch(source.tokenised.num_rows) for source in rows),
            num_tokens=sum(source.in_epoch(source.num_tokens) for source in rows),
            num_skipped=sum(len(source.tokenised.broken) for source in rows),
            unused=tuple(sorted({name for source in rows for name in source.tokenised.unused})),
            is_kept=any(source.tokenised.is_kept for source in rows),
        )

    def open_stream(self, division: int | None) -> Dataset:
        """Return the data with a stream of the training rows."""
        from llmops_kernel.train.data.stream.open import open_stream

        stream = open_stream(
            self.config,
            self.sources.train,
            tokenizer=self.tokenizer,
            hooks=self.hooks,
            context=self.context,
            division=division,
        )
        if stream.has_chats:
            self._warn_of_template()
        examples, generated, own = self._evaluation()
        return Dataset(
            train=stream.rows,
            sample=stream.sample,
            eval=examples,
            prompts=generated,
            own_prompts=own,
            num_rows=stream.num_rows,
            num_tokens=None,
            unused=stream.unused,
            stream=stream,
        )

    def _load_source(self, source: Source, settings: TrainSource) -> _SourceRows:
        data = self.config.data.of(settings)
        with named_source(source.name):
            tokenised = self._tokenised(source, data)
        for warning in (
            *_length_warnings(tokenised, source.name, data.max_length),
            *field_warnings(source.name, tokenised.uses, self.tokenizer),
        ):
            self.context.emit(warning)
        if tokenised.broken:
            broken = tokenised.broken
            self.context.emit(skipped_warning(source.name, len(broken), broken))
        examples = tokenised.examples
        packed = pack(examples, max_length=data.max_length) if data.packing else examples
        return _SourceRows(settings.weight, tokenised, packed)

    def _tokenised(self, source: Source, data: DataConfig) -> Tokenised:
        """Return the training rows, from the token cache where an earlier run has put them."""
        cache = TokenCache(self.context.cache or paths.cache())
        keys = KeyOf(source, data=data, tokenizer=self.tokenizer)
        has_hook = self.hooks.format_example is not None
        is_grouped = self.config.objective.rows  # Only plain examples are kept.
        key = None if has_hook or is_grouped else keys.key()
        if key and (cached := cache.read(key)):
            return cached
        broken: list[str] | None = [] if data.on_error == "skip" else None
        rows = source.load(data.max_rows, broken=broken, nulls=not has_hook)
        fields = Fields()
        formatted_rows: Iterable[Row | DataError] = formatted(
            rows, data=data, hooks=self.hooks, fields=fields
        )
        if has_hook:  # What a user's code makes of a row is not known before it was called.
            formatted_rows = list(formatted_rows)
            key = None if is_grouped else keys.key_of(formatted_rows, broken or ())
            if key and (cached := cache.read(key)):
                return replace(cached, uses=fields.uses, unused=fields.unused)
        tokenised = tokenise_formatted(formatted_rows, tokenizer=self.tokenizer, data=data)
        tokenised = replace(
            tokenised,
            num_rows=len(rows),
            broken=(*(broken or ()), *tokenised.broken),
            uses=fields.uses,
            unused=fields.unused,
        )
        if key and self.context.local_rank == 0 and (has_hook or keys.unchanged()):
            cache.write(key, tokenised)
        return tokenised

    def _evaluation(self) -> tuple[list[Example], list[Prompt], list[Prompt]]:
        """Return the evaluation rows, prompts of them to be answered, and those of the config."""
        examples, generated = self._evaluation_rows()
        evaluation, data = self.config.evaluation, self.config.data
        own = own_prompts(evaluation.prompts, tokenizer=self.tokenizer, data=data)
        return examples, generated, own

    def _evaluation_rows(self) -> tuple[list[Example], list[Prompt]]:
        source, tokenizer, hooks = self.sources.eval, self.tokenizer, self.hooks
        if source is None:
            return [], []
        # A skipped evaluation row would make the loss incomparable with that of other runs.
        data = self.config.data.model_copy(update={"on_error": "stop"})
        rows = source.load(data.max_eval_rows, nulls=hooks.format_example is None)
        generated: list[Prompt] = []
        with named_source(source.name):
            tokenised = tokenise(rows, tokenizer=tokenizer, data=data, hooks=hooks)
            if self.config.evaluation.generate:
                generated = prompts(rows, tokenizer=tokenizer, data=data, hooks=hooks)
        for warning in field_warnings(source.name, tokenised.uses, tokenizer):
            self.context.emit(warning)
        return tokenised.examples, generated

    def _warn_of_template(self, *, num_apart: int = 0) -> None:
        """Emit the warnings about the chat template that makes texts of the training rows."""
        for warning in template_warnings(self.tokenizer):
            self.context.emit(warning)
        if num_apart:
            self.context.emit(
                WarningEvent(
                    message=f"{counted(num_apart, 'chat')} with several answers became several"
                    " sequences each: the chat template writes an earlier answer otherwise than"
                    " the last one, so each is trained as the last.",
                    remedy="nothing is lost, but an epoch has more sequences than rows",
                )
            )


def all_rows(data: Dataset) -> Sequence[Example | Packed]:
    """Return each training row once, of rows in memory."""
    rows: Any = data.train
    return rows.of_all_sources() if isinstance(rows, MixedRows) else rows


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


def _length_warnings(tokenised: Tokenised, source: str, max_length: int) -> Iterator[WarningEvent]:
    if tokenised.num_cut:
        yield WarningEvent(
            message=f"{tokenised.num_cut} of {tokenised.num_rows} rows of {source} are"
            f" longer than max_length={max_length} and were truncated.",
            remedy="raise data.max_length if the truncated part matters",
        )
    if tokenised.num_empty:
        yield WarningEvent(
            message=f"{tokenised.num_empty} rows of {source} have no token that counts for"
            f" the loss and were skipped.",
            remedy="raise data.max_length, or check for empty answers",
        )


def _check_enough(num_sequences: int, config: TrainingConfig) -> None:
    workers = config.parallelism.num_workers
    if num_sequences < workers:
        raise DataError(
            f"{counted(num_sequences, 'sequence')} cannot be divided among {workers} workers.",
            remedy=f"set parallelism.num_workers={max(1, num_sequences)}, give more rows"
            + (", or turn data.packing off" if config.data.packing else ""),
        )
