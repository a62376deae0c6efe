"""Broken rows: where they are in their files, and the reading of all rows before a training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.train.collectives import from_main, gather
from llmops_kernel.train.data.examples import format_row, render_row
from llmops_kernel.train.data.skipped import SHOWN
from llmops_kernel.train.data.stream.plan import StreamPlan, note_checked, was_checked
from llmops_kernel.train.data.stream.reader import Row, place, read
from llmops_kernel.train.data.stream.walk import Located
from llmops_kernel.train.hooks import Hooks

Check = Callable[[Row, str], object]
"""Raises for a broken row, which the error calls by its label."""


@dataclass(frozen=True)
class _Found:
    """A row that cannot be trained on; in the order of the data."""

    source: int
    part: int
    number: int
    error: LLMOpsError


@dataclass
class _Share:
    """The broken rows that one worker has found."""

    count: int = 0
    first: list[_Found] = field(default_factory=list)

    def add(self, source: int, part: int, number: int, error: LLMOpsError) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(_Found(source, part, number, error))


def named(message: str, located: Located, plans: Sequence[StreamPlan]) -> str:
    """Return what is wrong with a row, with its place in its file."""
    plan = plans[located.source]
    location = place(plan.files, plan.parts[located.part], located.number)
    if len(plans) > 1 and location.partition(", ")[0] not in plan.source:
        location = f"{plan.source}: {location}"
    for word in ("Row", "row"):
        message = message.replace(f"{word} {located.label}", location)
    return message


def check_rows(
    config: TrainingConfig,
    plans: Sequence[StreamPlan],
    hooks: Hooks,
    *,
    rank: int,
    world: int,
    cache: Path,
    tokenizer: Any = None,
) -> None:
    """Read all rows where the config asks for it, each worker a share. Call it on all workers.

    With a tokenizer its chat template is applied to each chat. Rows of files that did not change
    since are not read again, unless a hook formats them. Raises on all workers the same
    `DataError` or `HookError`, which names the first broken rows.
    """
    if config.data.on_error != "check":
        return
    sources = [config.data.of(source) for source in config.data.sources]
    shapes: list[Any] = [[data.format, data.columns] for data in sources]
    shapes.append(getattr(tokenizer, "chat_template", None))
    mark = None
    if hooks.format_example is None:
        mark = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:8]
    if from_main(mark is not None and all(was_checked(plan, mark, cache) for plan in plans)):
        return
    checks = [_check(data, hooks, tokenizer) for data in sources]
    shares = gather(_broken(plans, checks, rank=rank, world=world))
    if count := sum(share.count for share in shares):
        failures = (failure for share in shares for failure in share.first)
        first = sorted(failures, key=lambda failure: (failure.source, failure.part, failure.number))
        raise _error(config.data.train_words, [failure.error for failure in first], count)
    if mark is not None:
        for plan in plans:
            note_checked(plan, mark, cache)


def _check(data: DataConfig, hooks: Hooks, tokenizer: Any) -> Check:
    def check(row: Row, label: str) -> None:
        shape = format_row(row, label, data, hooks)
        if tokenizer is not None and "messages" in shape:
            render_row(shape, label, tokenizer)

    return check


def _broken(
    plans: Sequence[StreamPlan], checks: Sequence[Check], *, rank: int, world: int
) -> _Share:
    """Return the broken rows of every `world`th part; none after a part that cannot be read."""
    share = _Share()
    for source, plan in enumerate(plans):
        for part in plan.parts[rank::world]:
            try:
                rows = read(plan.files, part)
            except LLMOpsError as error:
                share.add(source, part.index, 0, error)
                return share
            for number in range(len(rows)):
                located = Located(rows, number, part.index, position=0, source=source)
                try:
                    checks[source](located.decode(), located.label)
                except LLMOpsError as error:
                    located_error = error
                    if len(share.first) < SHOWN:  # To find a place reads the file up to it.
                        message = named(error.message, located, plans)
                        located_error = type(error)(message, remedy=error.remedy)
                    share.add(source, part.index, number, located_error)
    return share


def _error(source: str, first: Sequence[LLMOpsError], count: int) -> LLMOpsError:
    if count == 1 or not isinstance(first[0], DataError):
        return first[0]
    listed = "; ".join(error.message.rstrip(".") for error in first[:SHOWN])
    omitted = f"; and {count - SHOWN:,} more" if count > SHOWN else ""
    return DataError(
        f"{count:,} rows of {source} are broken: {listed}{omitted}.",
        remedy="correct or delete these rows, or set data.on_error=skip",
    )
