"""The view of a run that makes steps: loss, speed, evaluations and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import Any, TypeVar

from llmops_kernel.metrics.events import (
    AnyEvent,
    CheckpointEvent,
    EvalEvent,
    Event,
    ProgressEvent,
    RestartEvent,
    RowsEvent,
    StartEvent,
    StepEvent,
)
from llmops_kernel.metrics.flops import REJECTED_PEAK, possible
from llmops_kernel.metrics.scores import lower_is_better
from llmops_kernel.metrics.waterfall import Measured
from llmops_kernel.store.journal import history as folding
from llmops_kernel.store.journal.history import FIELDS, Generation, History, Key, stride_for
from llmops_kernel.store.journal.sample_texts import SampleTexts
from llmops_kernel.store.journal.spans import PhaseSpan, when
from llmops_kernel.store.journal.view import SUBMIT_PHASES, Progress, RunView, finite
from llmops_kernel.store.journal.whole_run import (
    PARTS,
    TimeLeft,
    WholeRun,
    evaluations,
    saves,
)

RECENT_STEPS = 10
WINDOW = 100
"""Where the time of a run goes is told from so many steps while it runs."""
MIN_ROWS = 300
"""So many steps are kept whatever they hold."""

_STEP_TIME = attrgetter("step_time_s")
B = TypeVar("B", EvalEvent, CheckpointEvent)


class TrainingView(RunView):
    """A RunView with the steps, evaluations and checkpoints that remain after restarts."""

    def __init__(self, events: Iterable[AnyEvent] = (), *, kind: str = "train") -> None:
        self._groups: dict[str, int] = {}
        self._generations: dict[Key, Generation] = {}
        self._history: History | None = None
        self._stride = 1
        self._texts = SampleTexts()
        self._counted: ProgressEvent | None = None
        super().__init__(events, kind=kind)

    def _take(self, events: Sequence[AnyEvent]) -> None:
        # The few other events first, so that the steps of a long journal are added at once;
        # the order does not change the result.
        steps = [event for event in events if type(event) is StepEvent]
        if len(steps) < len(events):
            super()._take([event for event in events if type(event) is not StepEvent])
        for _, group in groupby(steps, attrgetter("attempt", "stream")):
            batch = list(group)
            self._note(batch[0], last_s=max([event.time_s for event in batch]))
            self._add_steps(batch)

    def _add(self, event: AnyEvent) -> None:
        if isinstance(event, StartEvent):
            self._generation(event).starts.append(event)
        elif isinstance(event, EvalEvent):
            self._texts.note(event)
            self._add_beside(event, events=self._generation(event).evals)
        elif isinstance(event, CheckpointEvent):
            self._add_beside(event, events=self._generation(event).checkpoints)
        elif isinstance(event, ProgressEvent):
            if self._counted is None or when(self._counted) < when(event):
                self._counted = event
        else:
            super()._add(event)
        if isinstance(event, StartEvent | RestartEvent):
            self._history = None

    def _generation(self, event: Event) -> Generation:
        group = self._groups.get(event.stream)
        if group is None:
            group = self._groups[event.stream] = folding.worker_group(event.stream)
        key = (event.attempt, group)
        generation = self._generations.get(key)
        if generation is None:
            generation = self._generations[key] = Generation(key)
            self._history = None
        return generation

    def _add_steps(self, events: list[StepEvent]) -> None:
        """Add steps of one stream and attempt."""
        generation = self._generation(events[0])
        generation.add_steps(events)
        history = self._history
        # The usual case while following: some more steps, without folding all again.
        if (
            history is not None
            and generation.key == max(self._generations)
            and folding.extends(history, events, self.restarts)
        ):
            history.extend(events)
        else:
            self._history = None

    def _add_beside(self, event: B, *, events: list[B]) -> None:
        """Add an evaluation or a checkpoint; the newest group's usually come last."""
        events.append(event)
        history = self._history
        is_newest = self._generation(event).key == max(self._generations)
        if history is not None and not (is_newest and history.takes(event, self.restarts)):
            self._history = None

    def _folded(self) -> History:
        if self._history is None:
            self._history = folding.fold(self._generations.values(), self.restarts)
        return self._history

    @property
    def steps(self) -> list[StepEvent]:
        """Return one event per step number, in order; after a restart the newest wins.

        Do not change the list.
        """
        return self._folded().steps

    @property
    def rows(self) -> Sequence[Event]:
        return self.steps

    @property
    def stride(self) -> int:
        return self._stride

    def thin(self, *, max_cells: int) -> bool:
        """Keep half as many steps; figures, marks and the loss stay what they were."""
        generations = self._generations.values()
        count = sum(len(generation.steps) for generation in generations)
        if count <= MIN_ROWS:
            return False
        max_rows = max(MIN_ROWS, max_cells // (len(FIELDS) + len(self.logged)))
        if count <= max_rows:
            return False
        # A restart goes on from the newest checkpoint: no row may stand for both sides of it.
        saved = [event.step + 1 for event in self.checkpoints[-1:]]
        edges = sorted([*saved, *([] if self.nan_since is None else [self.nan_since])])
        spans = [(min(g.steps), max(g.steps)) for g in generations if g.steps]
        self._stride = max(self._stride, stride_for(spans, max_rows=max_rows // 2))
        for generation in generations:
            generation.thin(stride=self._stride, edges=edges)
        self._history = None
        return True

    @property
    def logged(self) -> tuple[str, ...]:
        """Return names of the further numbers of all steps, such as those of `track.log`."""
        return tuple(self._folded().logged)

    @property
    def evals(self) -> list[EvalEvent]:
        """Return evaluations as reported; `evaluations` have the texts of all their samples."""
        return self._folded().evals

    @property
    def evaluations(self) -> list[EvalEvent]:
        return [self._texts.whole(event) for event in self.evals]

    @property
    def sampled(self) -> EvalEvent | None:
        # Asked at each change of the panel: texts are put into one report, not into all.
        newest = next(
            (evaluation for evaluation in reversed(self.evals) if evaluation.samples), None
        )
        return None if newest is None else self._texts.whole(newest)

    @property
    def checkpoints(self) -> list[CheckpointEvent]:
        return self._folded().checkpoints

    @property
    def skipped_rows(self) -> int:
        """Return how many rows of training data were skipped, without what a restart has undone."""
        before = self.start.num_skipped if self.start else 0
        firsts = [(key, generation.first_step) for key, generation in self._generations.items()]
        return before + sum(
            event.num_skipped
            for event in self._of(RowsEvent)
            if not any(
                key > (event.attempt, folding.worker_group(event.stream))
                and first is not None
                and first <= event.step
                for key, first in firsts
            )
        )

    @property
    def start(self) -> StartEvent | None:
        """Return what the newest worker group reported before its first step."""
        for key in sorted(self._generations, reverse=True):
            if self._generations[key].start is not None:
                return self._generations[key].start
        return None

    @property
    def restarting(self) -> RestartEvent | None:
        restarts = [event for event in self.restarts if event.attempt == self.attempt]
        if not restarts:
            return None
        reported = [
            time_s
            for (attempt, _), generation in self._generations.items()
            if attempt == self.attempt
            for time_s in [*(start.time_s for start in generation.starts), generation.last_done_s]
            if time_s is not None
        ]
        return restarts[-1] if max(reported, default=0.0) <= restarts[-1].time_s else None

    @property
    def counted(self) -> ProgressEvent | None:
        newest = self._counted
        begun_s = [
            phase.begin_s for phase in self.phases() if phase.name == "evaluate" and not phase.end_s
        ]
        is_of_it = newest is not None and begun_s and newest.time_s >= begun_s[-1]
        return newest if is_of_it and newest and newest.attempt == self.attempt else None

    @property
    def last_step(self) -> int | None:
        if self.steps:
            return self.steps[-1].step
        return None if self.start is not None else super().last_step

    @property
    def total_steps(self) -> int | None:
        return self.start.total_steps if self.start else None

    @property
    def progress(self) -> Progress | None:
        """Return steps done; a resumed attempt begins at its checkpoint. None before any report."""
        start, steps = self.start, self.steps
        if start is None and not steps:
            return super().progress
        last_step = steps[-1].step if steps else start.first_step - 1 if start else 0
        total = start.total_steps if start is not None and start.total_steps > 0 else None
        return Progress(last_step, total, "steps")

    @property
    def shows_undone_steps(self) -> bool:
        """Return True while a restart has undone all steps and none has been made again."""
        return self._folded().is_outdated

    @property
    def is_outdated(self) -> bool:
        return self.shows_undone_steps or super().is_outdated

    def time_left(self, now_s: float) -> TimeLeft | None:
        """Return the time of steps at the recent pace, and of evaluations and saves.

        None unless steps are being made.
        """
        start, total, pace_s = self.start, self.total_steps, self._recent(_STEP_TIME)
        if self.state != "RUNNING" or self.is_outdated or pace_s is None or not total or not start:
            return None
        last = self.last_step or 0
        spans = self.phases()
        evaluated, saved = evaluations(start, self.evals), saves(start, self.checkpoints, spans)
        left = TimeLeft(max(0, total - last) * pace_s)
        left = left.plus(evaluated.left(last, total)).plus(saved.left(last, total))
        if last >= total and not left.seconds:
            return None  # What is to come was never measured.
        open_phase = {span.name: span.begin_s for span in spans if span.end_s is None}
        if "evaluate" in open_phase:
            begun_s, most_s = open_phase["evaluate"], evaluated.usual_s or 0.0
        elif "save" in open_phase:
            begun_s, most_s = open_phase["save"], saved.usual_s or 0.0
        else:
            last_events = [self.steps[-1], *self.evals[-1:], *self.checkpoints[-1:]]
            begun_s = max(event.time_s for event in last_events)
            most_s = pace_s if last < total else 0.0
        # At most what is under way is credited: a stalled run does not count down to zero.
        under_way_s = min(max(0.0, now_s - begun_s), most_s)
        return replace(left, seconds=max(0.0, left.seconds - under_way_s))

    def _recent(self, value: Callable[[StepEvent], float | None]) -> float | None:
        history = self._folded()
        window = history.steps[-RECENT_STEPS - 1 :]
        settled = [event for event in window if (event.stream, event.step) not in history.warmups]
        values = [number for event in settled if (number := value(event)) is not None]
        return median(values[-RECENT_STEPS:]) if values else None

    @property
    def whole(self) -> WholeRun | None:
        """Return the sums over all steps of a run that has ended; None while it runs.

        The first step of each worker group is left out, as it is of the figures of a run that is
        under way: it pays for allocation and kernels.
        """
        if not self.is_terminal:
            return None
        history = self._folded()
        if history.whole is None:
            history.whole = folding.whole(history, self._generations.values())
        return history.whole

    @property
    def step_time_s(self) -> float | None:
        """Return the median of the last 10 steps, without first ones; at the end the mean of all.

        So are rates and utilizations, at the end by the totals of the run.
        """
        return self._recent(_STEP_TIME) if self.whole is None else self.whole.step_time_s

    @property
    def tokens_per_second(self) -> float | None:
        if self.whole is not None:
            return self.whole.tokens_per_second
        return self._recent(lambda event: event.tokens_per_second)

    @property
    def mfu(self) -> float | None:
        """Return the MFU.

        None also if a step was faster than the peak, which proves the peak wrong.
        """
        return self._utilization("mfu")

    @property
    def mfu_palm(self) -> float | None:
        """Return the MFU as other tools give it for the same steps."""
        return self._utilization("mfu_palm")

    @property
    def hfu(self) -> float | None:
        """Return the share of the peak that all FLOPs took that were computed, needed or not."""
        return self._utilization("hfu")

    def _utilization(self, name: str) -> float | None:
        if self.start is not None and self.start.peak_source == REJECTED_PEAK:
            return None
        if self.whole is not None:
            return possible(self.whole.utilization(name))
        return self._recent(attrgetter(name))

    @property
    def measured(self) -> Measured | None:
        """Return what took the time of the last `WINDOW` steps, at the end that of all steps.

        Without the first of each worker group. None where no step of these has parts.
        """
        history, groups = self._folded(), list(self._generations.values())
        steps = [e for e in history.steps if (e.stream, e.step) not in history.warmups]
        whole = self.whole
        if whole is None:
            steps = steps[-WINDOW:]
            whole = folding.whole(History(steps=steps, warmups=history.warmups), groups)
        parts = {name: whole.share(name) for name in PARTS}
        if not steps or parts["passes_s"] is None:
            return None
        between = range(steps[0].step, steps[-1].step)
        start = self.start
        source = start.peak_source if start else REJECTED_PEAK
        ceiling, peak = (start.ceiling_flops, start.peak_flops) if start else (None, None)
        reached = ceiling / peak if ceiling and peak else None
        return Measured(
            steps=whole.steps,
            steps_s=whole.time_s,
            evaluation_s=sum(e.duration_s or 0.0 for e in self.evals if e.step in between),
            save_s=sum(e.duration_s or 0.0 for e in self.checkpoints if e.step in between),
            parts=parts,
            fixed_share=start.fixed_share if start else None,
            ceiling=1.0 if source.startswith("measured") else reached,
            tokens_per_second=whole.tokens_per_second,
            **{
                name: None if source == REJECTED_PEAK else possible(whole.utilization(name))
                for name in ("mfu", "hfu", "recomputed")
            },
        )

    @property
    def loss(self) -> float | None:
        """Return the loss of the last step that reported one; NaN when that step diverged."""
        return self._folded().loss

    @property
    def nan_since(self) -> int | None:
        """Return the first step of the newest stretch of NaN or infinite losses, else None."""
        return self._folded().nan_since

    @property
    def peak_memory_bytes(self) -> int | None:
        return self._folded().peak_memory_bytes

    @property
    def submit_to_first_step_s(self) -> float | None:
        """Return seconds from the newest attempt's first phase at the client to its first step."""
        begins = [e.time_s for e in self._phase_events(self.attempt) if e.name in SUBMIT_PHASES]
        ends = [
            generation.first_done_s
            for (attempt, _), generation in self._generations.items()
            if attempt == self.attempt and generation.first_done_s is not None
        ]
        return max(0.0, min(ends) - min(begins)) if begins and ends else None

    @property
    def last_eval_loss(self) -> float | None:
        losses = [e.metrics["eval_loss"] for e in self.evals if "eval_loss" in e.metrics]
        return losses[-1] if losses else None

    @property
    def best_metrics(self) -> dict[str, float]:
        """Return the best value of each metric: lowest of losses and errors, else highest."""
        best: dict[str, float] = {}
        for event in self.evals:
            for name, value in event.metrics.items():
                if not math.isfinite(value):
                    continue
                pick = min if lower_is_better(name) else max
                best[name] = pick(best.get(name, value), value)
        return best

    def summary(self) -> dict[str, Any]:
        planned = self.start.planned if self.start else None
        return {
            **super().summary(),
            "last_step": self.last_step,
            "total_steps": self.total_steps,
            "loss": finite(self.loss),
            "nan_since": self.nan_since,
            "step_time_s": self.step_time_s,
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
            "mfu_palm": self.mfu_palm,
            "hfu": self.hfu,
            "peak_memory_bytes": self.peak_memory_bytes,
            "submit_to_first_step_s": self.submit_to_first_step_s,
            "device": self.start.device if self.start else None,
            "planned": planned.model_dump() if planned else None,
            "best_metrics": self.best_metrics,
            "evals": [
                {"step": e.step, "metrics": {k: finite(v) for k, v in e.metrics.items()}}
                for e in self.evals
            ],
        }


class ScriptView(TrainingView):
    """The view of a script, which may report no step at all."""

    def _phases(self, attempt: int) -> list[PhaseSpan]:
        """Return the phases; a script that ended without a first step has the phase `script`."""
        spans = super()._phases(attempt)
        if any(step.attempt == attempt for step in self.steps):
            return spans
        end = self.end_of(attempt)
        succeeded = end is not None and end.state == "SUCCEEDED"
        return [
            replace(span, name="script", interrupted=not succeeded)
            if span.name == "first_step" and span.interrupted
            else span
            for span in spans
        ]
