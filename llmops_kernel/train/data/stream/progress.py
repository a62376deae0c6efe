"""What a stream adds to the steps: when its rows end, the epoch, and which rows were left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.config.row_formats import Use
from llmops_kernel.metrics.events import RowsEvent, WarningEvent
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.skipped import SHOWN, field_warnings, skipped_warning
from llmops_kernel.train.data.stream.dataset import Cursor, Seen, StreamedRows
from llmops_kernel.train.data.stream.plan import save_counts
from llmops_kernel.train.data.stream.schedule import StreamSchedule, steps_in_all

Counts = dict[tuple[int, int], int]
"""Source and part -> rows of JSONL parts."""
_REPORT_STEPS = 500
"""The workers report at least so often."""


@dataclass(frozen=True)
class _Share:
    """One rank's part of a report."""

    broken: tuple[str, ...]
    """What is wrong with the first of the skipped rows."""
    num_broken: int
    counts: Counts
    seen: Seen
    uses: dict[Use, int]
    """What is to be said of fields -> rows that this worker has read with them."""
    at: Cursor
    """Where the worker's rows end after the step."""


@dataclass
class StreamProgress:
    """Follows the rows of one worker; all workers call its methods alike."""

    context: WorkerContext
    rows: StreamedRows
    rows_per_step: int
    """Of this worker."""
    ends_with_rows: bool
    """The training ends with the rows, however many steps that takes; else with the steps."""
    max_length: int
    cache: Path
    tokenizer: Any = None
    _schedule: StreamSchedule | None = None
    """Of the learning rate, if the training ends with the rows."""
    _reported: int = 0
    """Step up to which the workers have reported."""
    _saved: Counts = field(default_factory=dict)
    _said: frozenset[Use] = frozenset()
    """What was said of fields at the start."""
    _ends: tuple[Cursor, ...] = ()
    """Where the rows of all workers end after the reported step."""

    def say_fields(self) -> tuple[str, ...]:
        """Warn of the fields of the first rows; return the columns that are not used."""
        fields = self.rows.fields
        first = f"the first rows of {self.rows.walk.plan.source}"
        for warning in field_warnings(first, fields.uses, self.tokenizer):
            self.context.emit(warning)
        self._said = frozenset(fields.uses)
        fields.uses.clear()
        return fields.unused

    def follow(self, schedule: StreamSchedule) -> None:
        """Tell a schedule of the learning rate after each step how far the rows are."""
        self._schedule = schedule

    def begin(self, step: int) -> None:
        """Begin after a step: 0, or that of the checkpoint."""
        self._reported = step
        self._saved = self._counts()

    def is_finished(self, step: int) -> bool:
        """Return whether this worker has trained on its last row."""
        return self.ends_with_rows and self.rows.is_finished(step * self.rows_per_step)

    def share(self, step: int) -> float:
        """Return the share of this worker's rows, of all epochs, that it has trained on."""
        epochs = self.rows.walk.num_epochs
        return self.rows.epoch_at(step * self.rows_per_step) / epochs if epochs else 0.0

    def end_step(self, state: Any, control: Any, *, finished: bool, progress: float) -> bool:
        """Set epoch, total and end of the training after a step; return whether it was the last.

        Until lines have been counted the total is an estimate, which the end need not meet.
        `progress`: the share of the rows that all workers have trained on.
        """
        step = state.global_step
        state.epoch = self.rows.epoch_at(step * self.rows_per_step)
        if not self.ends_with_rows:
            return bool(step >= state.max_steps)
        if self._schedule is not None:
            self._schedule.note(steps=step, progress=progress)
        if finished:
            control.should_training_stop = True
            state.max_steps = step
        elif step >= state.max_steps:  # Upstream has asked to stop here.
            control.should_training_stop = False
            state.max_steps = steps_in_all(step, progress)
        return finished

    def is_due(self, step: int) -> bool:
        """Return whether to report after this step; the same on all workers."""
        return step % _REPORT_STEPS == 0

    def report(self, step: int, *, is_end: bool = False) -> None:
        """Report the rows up to a step. Call it on all ranks."""
        if step == self._reported:
            return
        shares = gather(self._share(step))
        if self.context.is_main:
            self._emit(step, shares, is_end=is_end)
        self._reported = step
        self._ends = tuple(share.at for share in shares)

    def save(self, checkpoint: Path) -> None:
        """Write into a checkpoint where the rows of all workers end. Rank 0 calls it."""
        if self.context.is_main and self._ends:
            write_cursors(checkpoint, self._ends)

    def resume(self, checkpoint: Path, step: int) -> None:
        """Continue after a checkpoint's step, where the rows of this worker have ended."""
        cursors = read_cursors(checkpoint, world=self.context.world_size)
        mine = cursors[self.context.rank] if cursors else None
        self.rows.resume(step * self.rows_per_step, mine)

    def _counts(self) -> Counts:
        walks = self.rows.walk.walks
        return {(n, part): rows for n, walk in enumerate(walks) for part, rows in
                dict(walk.counts).items()}  # fmt: skip

    def _share(self, step: int) -> _Share:
        at = self.rows.rows_at(step * self.rows_per_step)
        broken = self.rows.trained(at.rows)
        found = {part: num for part, num in self._counts().items() if part not in self._saved}
        self._saved |= found
        shown = tuple(one.message for one in broken[:SHOWN])
        uses = dict(self.rows.fields.uses)
        return _Share(shown, len(broken), found, self.rows.seen, uses, at)

    def _emit(self, step: int, shares: Sequence[_Share], *, is_end: bool) -> None:
        plan, num_broken = self.rows.walk.plan, sum(share.num_broken for share in shares)
        if num_broken:
            self.context.emit(RowsEvent(step=step, num_skipped=num_broken))
            first = [text for share in shares for text in share.broken][:SHOWN]
            self.context.emit(skipped_warning(plan.source, num_broken, first))
        if is_end:
            self._warn_lengths(plan.source, [share.seen for share in shares])
            self._warn_fields(plan.source, [share.uses for share in shares])
        for share in shares:
            self._saved |= share.counts
        if any(share.counts for share in shares):
            for number, walk in enumerate(self.rows.walk.walks):
                own = {part: num for (of, part), num in self._saved.items() if of == number}
                save_counts(walk.plan, own, self.cache)

    def _warn_fields(self, source: str, shares: Sequence[dict[Use, int]]) -> None:
        """Warn of fields that the first rows did not have; a row counts each time it was read."""
        found = sum((Counter(share) for share in shares), Counter[Use]())
        late = {use: count for use, count in found.items() if use not in self._said}
        where = f"of the rows of {source}, each as often as it was read"
        for warning in field_warnings(where, late, self.tokenizer):
            self.context.emit(warning)

    def _warn_lengths(self, source: str, seen: Sequence[Seen]) -> None:
        if num_cut := sum(one.num_cut for one in seen):
            self.context.emit(
                WarningEvent(
                    message=f"{num_cut:,} rows of {source} are longer than"
                    f" max_length={self.max_length} and were truncated.",
                    remedy="raise data.max_length if the truncated part matters",
                )
            )
        if num_empty := sum(one.num_empty for one in seen):
            self.context.emit(
                WarningEvent(
                    message=f"{num_empty:,} rows of {source} have no token that counts for the"
                    " loss: nothing was learned from them.",
                    remedy="raise data.max_length, or check for empty answers",
                )
            )


# --- The ends of all workers' rows, kept with each checkpoint: maybe inside of a long text ---


FILE = "llmops_rows.json"


def write_cursors(checkpoint: Path, ends: Sequence[Cursor]) -> None:
    """Add them to a checkpoint that is not marked complete yet, in the order of ranks."""
    with suppress(OSError):  # A full disk is reported by those who write the rest.
        (checkpoint / FILE).write_text(json.dumps([[end.rows, end.pieces] for end in ends]))


def read_cursors(checkpoint: Path, *, world: int) -> list[Cursor] | None:
    """Return them; None for a checkpoint of an earlier version, whose rows were never divided."""
    with suppress(OSError, ValueError, TypeError):
        cursors = [Cursor(*map(int, end)) for end in json.loads((checkpoint / FILE).read_text())]
        return cursors if len(cursors) == world else None
    return None
