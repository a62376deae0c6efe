"""Reads, tokenises and sums up the data of a config, with the functions that its workers use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from llmops_kernel.config.models.sections import DataConfig, TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.row_formats import Fault, fields_of, recognised, renamed
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.models.answer_spans import template_warnings
from llmops_kernel.models.source import tokenizer_of
from llmops_kernel.store.files import find
from llmops_kernel.store.preview_job import (
    DataPreview,
    Epoch,
    Leaks,
    PreviewJob,
    ShownRow,
    Side,
    SourceReport,
    SourceRows,
    SourceShare,
)
from llmops_kernel.train.data.mixture import MixedRows, exact
from llmops_kernel.train.data.preview.look import (
    Columns,
    Formatted,
    NumberedRow,
    RowReader,
    RowRequest,
    RowSizes,
    Sample,
    all_columns,
    measured,
    shown_row,
    spread,
)
from llmops_kernel.train.data.preview.report import (
    epoch,
    leaks,
    sequences,
    source_report,
    source_rows,
)
from llmops_kernel.train.data.preview.sample import MOST_COMPARED, row_at, sample
from llmops_kernel.train.data.sources import DataSources, Source
from llmops_kernel.train.hooks import Hooks, load_hooks
from llmops_kernel.train.model.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Inspection:
    """A source whose rows were read, formatted and tokenised."""

    reader: RowReader
    rows: Sequence[Formatted]
    measurements: Sequence[RowSizes]
    """Empty without a tokenizer."""
    read: Sample
    request: RowRequest

    def report(self, max_length: int) -> SourceReport:
        """Return its figures."""
        name = self.request.source.name
        report = source_report(name, self.read, self.rows, self.measurements, max_length=max_length)
        return report.model_copy(update=self._broken_and_unused(report))

    def report_of_rows(self) -> SourceRows:
        """Return what is known without a tokenizer."""
        report = source_rows(self.request.source.name, self.read, self.rows)
        return report.model_copy(update=self._broken_and_unused(report))

    def _broken_and_unused(self, report: SourceRows) -> dict[str, Any]:
        """Return what is known of rows and columns that are not among the rows."""
        broken = self.request.broken or []
        unused = sorted({*report.unused, *self.request.unread})
        return {"num_broken": len(broken), "broken": broken[:3], "unused": unused}


class SourceInspector:
    """Looks at the sources of a config. `tokenizer` None: rows are read and formatted only."""

    def __init__(
        self, config: TrainingConfig, *, workspace: Path, hooks: Hooks, tokenizer: Any, rows: int
    ) -> None:
        self._config, self._roots = config, (workspace,)
        self._hooks, self._tokenizer, self._rows = hooks, tokenizer, rows

    def inspect(self, data: DataConfig, request: RowRequest) -> Inspection:
        """Read, format and tokenise some rows. Raises DataError, HookError."""
        seed, most = self._config.seed, self._rows
        read = sample(request, count=most, seed=seed)
        reader = self.reader(data, request)
        compared = spread(len(read.rows), max(MOST_COMPARED, most), seed)
        rows = _formatted(reader, [read.rows[index] for index in compared], request)
        if self._tokenizer is None:
            return Inspection(reader, rows, [], read, request)
        is_sample = bool(read.where) or len(rows) > most
        measurements = measured(
            reader, rows, count=most, seed=seed, is_sample=is_sample, broken=request.broken
        )
        if not measurements:
            raise _all_broken(request)
        return Inspection(reader, rows, measurements, read, request)

    def reader(self, data: DataConfig, request: RowRequest) -> RowReader:
        return RowReader(
            request.source.name, data=data, hooks=self._hooks, tokenizer=self._tokenizer
        )

    def training_rows(self, data: DataConfig) -> RowRequest:
        """Return the rows of a data section with one source of training rows. Raises DataError."""
        sources = DataSources(data, self._roots)
        (source,) = sources.train
        unread: set[str] = set()
        return RowRequest(
            source,
            data.max_rows,
            is_streamed=sources.is_streamed,
            broken=[] if data.on_error == "skip" else None,
            columns=_columns(data, self._hooks, unread),
            nulls=self._hooks.format_example is None,
            unread=unread,
        )

    def evaluation_rows(self, data: DataConfig) -> RowRequest:
        """Return the evaluation rows. Raises ConfigError if the config names none."""
        if data.eval is None:
            raise _no_eval()
        unread: set[str] = set()
        return RowRequest(
            Source(data.eval, self._roots, data.eval_split),
            data.max_eval_rows,
            columns=_columns(data, self._hooks, unread),
            nulls=self._hooks.format_example is None,
            unread=unread,
        )


class Preview:
    """A preview job with the tokenizer and the hooks of its config."""

    def __init__(self, job: PreviewJob, progress: Callable[[str], None] = lambda _: None) -> None:
        self._began_s = time.monotonic()
        self._job = job
        given = TrainingConfig.model_validate(job.config)
        self._format, self._config = given.data.format, given.with_rows_read()
        workspace = Path(job.workspace)
        self._hooks = hooks_of(self._config, workspace)
        source, config = tokenizer_of(self._config, roots=(workspace,), cache=None)
        if remote := _on_hub(config, source, workspace):
            progress(f"Contacting the hub about {', '.join(remote)}")
        self._tokenizer: Any = load_tokenizer(source, config)
        self._inspector = SourceInspector(
            self._config,
            workspace=workspace,
            hooks=self._hooks,
            tokenizer=self._tokenizer,
            rows=job.max_rows,
        )

    def row(self, number: int) -> ShownRow:
        """Return one row whole. Raises DataError, HookError."""
        if self._job.side == "train" and self._config.data.is_mixture:
            raise _several()
        request = self._request(self._job.side)
        reader = self._inspector.reader(self._config.data, request)
        return self._shown(reader, reader.format(NumberedRow(row_at(request, number), number)))

    def all(self) -> DataPreview:
        """Return the figures of all sources, and some rows. Raises DataError, HookError."""
        config, data = self._config, self._config.data
        inspector = self._inspector
        train = [inspector.inspect(part, inspector.training_rows(part)) for part in self._sources()]
        held_out = self._inspect("eval") if data.eval is not None else None
        report, of_epoch = self._training_report(train)
        trained = [row for inspection in train for row in inspection.rows]
        return DataPreview(
            model=config.model.id,
            max_length=data.max_length,
            loss_on=data.loss_on,
            format=self._format,
            has_hook=self._hooks.format_example is not None,
            train=report,
            sources=shares(config, train) if data.is_mixture else [],
            eval=held_out.report(data.max_length) if held_out else None,
            leaks=self._leaks(trained, held_out.rows) if held_out else None,
            epoch=of_epoch,
            side=self._job.side,
            template=self._template_texts(trained),
            rows=self._shown_rows(train, held_out),
            took_s=time.monotonic() - self._began_s,
        )

    def _template_texts(self, rows: Sequence[Formatted]) -> list[str]:
        if not any("messages" in part for row in rows for part in row.parts):
            return []
        return [row.message for row in template_warnings(self._tokenizer)]

    def _sources(self) -> list[DataConfig]:
        data = self._config.data
        return [data.of(source) for source in data.sources]

    def _training_report(self, train: Sequence[Inspection]) -> tuple[SourceReport, Epoch]:
        config = self._config
        if config.data.is_mixture:
            report = together(config, train)
            return report, mixed_epoch(config, train, report)
        report = train[0].report(config.data.max_length)
        lengths = [length for row in train[0].measurements for length in row.sequences]
        return report, epoch(config, report, lengths)

    def _leaks(self, trained: Sequence[Formatted], held_out: Sequence[Formatted]) -> Leaks:
        result = leaks(trained, held_out)
        # Of several sources a number does not say which row it is.
        return result.model_copy(update={"pairs": []}) if self._config.data.is_mixture else result

    def _shown_rows(
        self, train: Sequence[Inspection], held_out: Inspection | None
    ) -> list[ShownRow]:
        """Return the first rows, and others from all over the side that is shown."""
        if self._job.side == "eval":
            if held_out is None:
                raise _no_eval()
            return self._rows_of(held_out, self._job.num_shown)
        if len(train) == 1 and not self._config.data.is_mixture:
            return self._rows_of(train[0], self._job.num_shown)
        most = self._job.num_shown
        counts = [most // len(train) + (n < most % len(train)) for n in range(len(train))]
        return [
            _named(row, source)
            for source, count in zip(train, counts, strict=True)
            for row in self._rows_of(source, count)
        ]

    def _rows_of(self, source: Inspection, count: int) -> list[ShownRow]:
        indices = spread(len(source.rows), count, self._config.seed)
        rows = []
        for index in [0, *indices[1:]][:count]:
            try:
                rows.append(self._shown(source.reader, source.rows[index]))
            except DataError:
                if source.request.broken is None:
                    raise  # Else it is counted among those that the run leaves out.
        return rows

    def _inspect(self, side: Side) -> Inspection:
        return self._inspector.inspect(self._config.data, self._request(side))

    def _request(self, side: Side) -> RowRequest:
        data = self._config.data
        if side == "eval":
            return self._inspector.evaluation_rows(data)
        return self._inspector.training_rows(data)

    def _shown(self, reader: RowReader, row: Formatted) -> ShownRow:
        wholes, sequences, _ = reader.tokenise(row)
        most = self._job.max_tokens
        return shown_row(row, wholes, sequences, tokenizer=self._tokenizer, most=most)


def _formatted(
    reader: RowReader, rows: Sequence[NumberedRow], request: RowRequest
) -> list[Formatted]:
    """Return the rows in their format, without those that the run leaves out."""
    result = []
    for row in rows:
        try:
            result.append(reader.format(row))
        except DataError as error:
            if request.broken is None:
                raise
            request.broken.append(error.message)
    if not result:
        raise _all_broken(request)
    return result


def _all_broken(request: RowRequest) -> DataError:
    return DataError(
        f"All rows of {request.source.name} that were read are broken:"
        f" {(request.broken or ['?'])[0]}",
        remedy="check data.format, data.columns and the file",
    )


def _columns(data: DataConfig, hooks: Hooks, unread: set[str]) -> Columns:
    """Return which columns make a row; a hook may read any. The others are put into `unread`."""
    if hooks.format_example is not None:
        return all_columns
    fields = {*fields_of(data.format), *data.columns.values()}

    def chosen(names: Sequence[str]) -> list[str] | None:
        used = [name for name in names if name in fields]
        row = renamed(dict.fromkeys(used), data.columns)
        if isinstance(row, Fault) or recognised(row, data.format) is None:
            return None  # The message lists all of them.
        unread.update(set(names) - set(used))
        return used

    return chosen


def hooks_of(config: TrainingConfig, workspace: Path) -> Hooks:
    """Load the hooks of a config. Raises HookError."""
    name = config.hooks.file
    if name is None:
        return Hooks()
    return load_hooks(find(name, (workspace,)) or workspace / name)


def _on_hub(config: TrainingConfig, model: str, workspace: Path) -> list[str]:
    """Return the names that are not on this machine; also data sets in the hub's cache."""
    remote = [source.name for source in DataSources(config.data, (workspace,)).on_hub]
    return remote if Path(model).is_dir() else [model, *remote]


def _named(row: ShownRow, source: Inspection) -> ShownRow:
    """Return a row of one of several sources with the name of its source."""
    number = "" if row.number is None else f", row {row.number:,}"
    return row.model_copy(update={"number": None, "where": f"{source.request.source.name}{number}"})


def _several() -> DataError:
    return DataError(
        "The training rows have several sources, and a number does not say which row is meant.",
        remedy="name one of them: `llmops data CONFIG data.train=FILE --row N`",
    )


def _no_eval() -> ConfigError:
    return ConfigError(
        "The config names no evaluation rows.", remedy="set data.eval, or look at the training rows"
    )


# --- Several sources together, and their shares of an epoch ---


_MOST_ROWS = 20_000
"""Rows that stand for an epoch, where not all were tokenised."""


class Inspected(Protocol):
    """A source that was inspected."""

    @property
    def rows(self) -> Sequence[Formatted]: ...

    @property
    def measurements(self) -> Sequence[RowSizes]: ...

    def report(self, max_length: int) -> SourceReport: ...


@dataclass(frozen=True)
class _EpochPart:
    """A source in an epoch."""

    source: TrainSource
    report: SourceReport
    used: list[int]
    """Tokens of each sequence that was inspected and is trained on."""

    @property
    def rows(self) -> int | None:
        """Return the rows of an epoch."""
        total = self.report.total_rows
        return None if total is None else round(exact(self.source.weight) * total)

    @property
    def tokens(self) -> int | None:
        """Return the tokens of an epoch."""
        total, seen = self.report.total_rows, self.report.num_rows
        if total is None or not seen:
            return None
        return round(exact(self.source.weight) * self.report.num_tokens * total / seen)


def together(config: TrainingConfig, inspected: Sequence[Inspected]) -> SourceReport:
    """Return the figures of all inspected rows, without row numbers: sources differ."""
    data = config.data
    reports = [inspection.report(data.max_length) for inspection in inspected]
    totals = [each.total_rows for each in reports]
    known_totals = [total for total in totals if total is not None]
    is_sample = any(each.is_sample for each in reports)
    sample = Sample(
        [],
        sum(known_totals) if len(known_totals) == len(totals) else None,
        is_estimate=any(each.is_estimate for each in reports),
        where="from all sources" if is_sample else "",
    )
    rows = [row for each in inspected for row in each.rows]
    rows = [replace(row, source_row=replace(row.source_row, number=None)) for row in rows]
    measurements = [replace(row, number=None) for each in inspected for row in each.measurements]
    report = source_report(data.train_words, sample, rows, measurements, max_length=data.max_length)
    broken = [f"{each.source}: {text}" for each in reports for text in each.broken]
    number = sum(each.num_broken for each in reports)
    return report.model_copy(update={"num_broken": number, "broken": broken[:3]})


def shares(config: TrainingConfig, inspected: Sequence[Inspected]) -> list[SourceShare]:
    """Return what each source is of an epoch."""
    parts = _parts(config, inspected)
    rows, tokens = ([getattr(part, name) for part in parts] for name in ("rows", "tokens"))
    return [
        SourceShare(
            source=part.source.path,
            weight=part.source.weight,
            total_rows=part.report.total_rows,
            is_estimate=part.report.is_estimate,
            rows=part.rows,
            row_share=_share(part.rows, rows),
            tokens=part.tokens,
            token_share=_share(part.tokens, tokens),
            is_sample=part.report.is_sample,
        )
        for part in parts
    ]


def _share(part: int | None, all_parts: Sequence[int | None]) -> float | None:
    counts = [count for count in all_parts if count is not None]
    if part is None or len(counts) < len(all_parts) or not sum(counts):
        return None
    return part / sum(counts)


def mixed_epoch(
    config: TrainingConfig, inspected: Sequence[Inspected], totals: SourceReport
) -> Epoch:
    """Return what one pass over all sources is. `totals`: their figures together."""
    parts = _parts(config, inspected)
    if not totals.is_sample:
        weights = [part.source.weight for part in parts]
        shuffle = config.data.shuffle
        mixed = MixedRows([part.used for part in parts], weights, seed=config.seed, shuffle=shuffle)
        lengths = list(mixed)
        report = _stand_in(totals, len(lengths), len(lengths), lengths)
        return epoch(config, report, lengths, are_sequences=True)
    rows = [part.rows for part in parts]
    total = None if None in rows else sum(filter(None, rows))
    scale = min(1.0, _MOST_ROWS / total) if total else None
    lengths = [
        part.used[number % len(part.used)]
        for part in parts
        if part.used
        for number in range(_count(part, scale))
    ]
    seen = round(scale * total) if scale and total else len(lengths)
    report = _stand_in(totals, total, seen, lengths)
    result = epoch(config, report, lengths, are_sequences=True)
    return result.model_copy(update={"is_estimate": True})


def _count(part: _EpochPart, scale: float | None) -> int:
    """Return how many sequences stand for a source; without a scale those that were inspected."""
    if scale is None or part.rows is None:
        return len(part.used)
    return max(1, round(scale * part.rows * len(part.used) / part.report.num_rows))


def _stand_in(
    totals: SourceReport, total: int | None, seen: int, lengths: Sequence[int]
) -> SourceReport:
    """Return figures with the rows of an epoch for those of the sources."""
    update = {"total_rows": total, "num_rows": seen, "num_tokens": sum(lengths)}
    return totals.model_copy(update=update)


def _parts(config: TrainingConfig, inspected: Sequence[Inspected]) -> list[_EpochPart]:
    return [
        _EpochPart(
            source,
            each.report(config.data.max_length),
            sequences(config, [length for row in each.measurements for length in row.sequences]),
        )
        for source, each in zip(config.data.sources, inspected, strict=True)
    ]
