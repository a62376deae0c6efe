"""Reads, tokenises and sums up the data of a config, with the functions that its workers use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.row_formats import FIELDS, Fault, recognised, renamed
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.models.source import model_source
from llmops_kernel.store.files import find
from llmops_kernel.store.preview_job import DataPreview, PreviewJob, ShownRow, Side, SourceReport
from llmops_kernel.train.data.choice import is_streamed
from llmops_kernel.train.data.preview.epoch import epoch
from llmops_kernel.train.data.preview.light import without_torch
from llmops_kernel.train.data.preview.look import Formatted, Measured, Reader, measured, spread
from llmops_kernel.train.data.preview.pieces import shown_row
from llmops_kernel.train.data.preview.report import leaks, source_report
from llmops_kernel.train.data.preview.sample import MOST_COMPARED, row_at, sample
from llmops_kernel.train.data.preview.wanted import Columns, Numbered, Wanted, all_columns
from llmops_kernel.train.hooks import Hooks, load_hooks
from llmops_kernel.train.model.tokenizer import load_tokenizer


@dataclass(frozen=True)
class _Source:
    """One source, looked at."""

    reader: Reader
    rows: Sequence[Formatted]
    found: Sequence[Measured]
    report: SourceReport


class Preview:
    """What a job asks for, with the tokenizer and the hooks of its config."""

    def __init__(self, job: PreviewJob) -> None:
        self._began_s = time.monotonic()
        self._job = job
        self._config = TrainingConfig.model_validate(job.config)
        self._roots = (Path(job.workspace),)
        self._hooks = _hooks(self._config, self._roots[0])
        source = model_source(self._config.model.id, roots=self._roots, cache=None)
        # After the hooks, which may import torch themselves.
        light = job.light and not self._config.model.trust_remote_code
        with without_torch() if light else nullcontext():
            self._tokenizer: Any = load_tokenizer(source, self._config)

    def row(self, number: int) -> ShownRow:
        """Return one row whole. Raises DataError, HookError."""
        wanted = self._wanted(self._job.side)
        reader = self._reader(wanted)
        return self._shown(reader, reader.format(Numbered(row_at(wanted, number), number)))

    def all(self) -> DataPreview:
        """Return the figures of all sources, and some rows. Raises DataError, HookError."""
        config, data = self._config, self._config.data
        train = self._look("train")
        held_out = self._look("eval") if data.eval is not None else None
        shown = self._chosen(train, held_out)
        used = [one.kept for one in train.found if one.counted]
        return DataPreview(
            model=config.model.id,
            max_length=data.max_length,
            loss_on=data.loss_on,
            format=data.format,
            has_hook=self._hooks.format_example is not None,
            train=train.report,
            eval=held_out.report if held_out else None,
            leaks=leaks(train.rows, held_out.rows) if held_out else None,
            epoch=epoch(config, train.report, used),
            side=self._job.side,
            rows=[self._shown(shown.reader, one) for one in self._first_rows(shown)],
            took_s=time.monotonic() - self._began_s,
        )

    def _chosen(self, train: _Source, held_out: _Source | None) -> _Source:
        if self._job.side == "train":
            return train
        if held_out is None:
            raise _no_eval()
        return held_out

    def _look(self, side: Side) -> _Source:
        job, wanted = self._job, self._wanted(side)
        read = sample(wanted, count=job.max_rows, seed=self._config.seed)
        reader = self._reader(wanted)
        compared = spread(len(read.rows), max(MOST_COMPARED, job.max_rows), self._config.seed)
        rows = _formatted(reader, [read.rows[index] for index in compared], wanted)
        found = measured(
            reader,
            rows,
            count=job.max_rows,
            seed=self._config.seed,
            is_sample=bool(read.where) or len(rows) > job.max_rows,
        )
        length = self._config.data.max_length
        report = source_report(wanted.source, read, rows, found, max_length=length).model_copy(
            update={"num_broken": len(wanted.broken or ()), "broken": (wanted.broken or [])[:3]}
        )
        return _Source(reader, rows, found, report)

    def _first_rows(self, source: _Source) -> list[Formatted]:
        """Return the first row, and others from all over the source."""
        chosen = spread(len(source.rows), self._job.num_shown, self._config.seed)
        return [source.rows[index] for index in [0, *chosen[1:]][: self._job.num_shown]]

    def _wanted(self, side: Side) -> Wanted:
        data = self._config.data
        if side == "train":
            return Wanted(
                data.train,
                self._roots,
                data.train_split,
                data.max_rows,
                is_streamed=is_streamed(data, self._roots),
                broken=[] if data.on_error == "skip" else None,
                columns=_columns(data, self._hooks),
            )
        if data.eval is None:
            raise _no_eval()
        return Wanted(
            data.eval,
            self._roots,
            data.eval_split,
            data.max_eval_rows,
            columns=_columns(data, self._hooks),
        )

    def _reader(self, wanted: Wanted) -> Reader:
        return Reader(
            wanted.source, data=self._config.data, hooks=self._hooks, tokenizer=self._tokenizer
        )

    def _shown(self, reader: Reader, one: Formatted) -> ShownRow:
        whole, kept = reader.tokenise(one)
        most = self._job.max_tokens
        return shown_row(one, whole, kept, tokenizer=self._tokenizer, most=most)


def _formatted(reader: Reader, rows: Sequence[Numbered], wanted: Wanted) -> list[Formatted]:
    """Return the rows in their format, without those that the run leaves out."""
    found = []
    for one in rows:
        try:
            found.append(reader.format(one))
        except DataError as error:
            if wanted.broken is None:
                raise
            wanted.broken.append(error.message)
    if not found:
        raise DataError(
            f"All rows of {wanted.source} that were read are broken: {(wanted.broken or ['?'])[0]}",
            remedy="check data.format, data.columns and the file",
        )
    return found


def _columns(data: DataConfig, hooks: Hooks) -> Columns:
    """Return which columns make a row; a hook may read any."""
    if hooks.format_example is not None:
        return all_columns
    known = {*FIELDS, *data.columns.values()}

    def chosen(names: Sequence[str]) -> list[str] | None:
        found = [name for name in names if name in known]
        row = renamed(dict.fromkeys(found), data.columns)
        if isinstance(row, Fault) or recognised(row, data.format) is None:
            return None  # The message lists all of them.
        return found

    return chosen


def _hooks(config: TrainingConfig, workspace: Path) -> Hooks:
    name = config.hooks.file
    if name is None:
        return Hooks()
    return load_hooks(find(name, (workspace,)) or workspace / name)


def _no_eval() -> ConfigError:
    return ConfigError(
        "The config names no evaluation rows.", remedy="set data.eval, or look at the training rows"
    )
