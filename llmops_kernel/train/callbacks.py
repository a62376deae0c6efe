"""Writes the Trainer's events to the run's journal. Runs on every worker; rank 0 writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from transformers import TrainerCallback

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.checkpoint import size_bytes
from llmops_kernel.driver.stacks import MOST_GROUPS, grouped
from llmops_kernel.metrics import profile
from llmops_kernel.metrics.events import (
    CheckpointEvent,
    PhaseEvent,
    ProcessEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.metrics.flops import REJECTED_PEAK, flops_per_second, mfu, possible
from llmops_kernel.store.outputs import PROFILE, announced
from llmops_kernel.train.checkpoints.store import complete_checkpoint
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.divergence import DivergenceGuard
from llmops_kernel.train.measure.device import PEAK_ENV_VAR, forget_cpu_peak
from llmops_kernel.train.measure.expert_counts import ExpertCounts
from llmops_kernel.train.measure.profiler import StepProfiler
from llmops_kernel.train.measure.start import StepSpeeds
from llmops_kernel.train.measure.step_flops import Flops, StepFlops
from llmops_kernel.train.measure.step_parts import EngineWatch
from llmops_kernel.train.measure.step_timer import StepCounts, StepTimer
from llmops_kernel.train.objectives.objective import Objective
from llmops_kernel.train.own_numbers import OwnNumbers
from llmops_kernel.warm.for_jobs import start_report

if TYPE_CHECKING:
    from llmops_kernel.train.data.identity import DataIdentity
    from llmops_kernel.train.data.stream.progress import StreamProgress


class JournalCallback(TrainerCallback):
    """Writes start, steps and checkpoints; stops all workers in the same step."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        config: TrainingConfig,
        timer: StepTimer,
        start: StartEvent,
        flops: StepFlops | None,
        guard: DivergenceGuard,
        numbers: OwnNumbers,
        experts: ExpertCounts | None = None,
        stream: StreamProgress | None = None,
        objective: Objective | None = None,
        data: DataIdentity | None = None,
        engine: Callable[[], str] = lambda: "",
        verify: Callable[[], dict[str, str]] = dict,
        optimizer_states: Callable[[], str] = lambda: "unknown",
        watch: Callable[[], EngineWatch] | None = None,
        profiler: StepProfiler | None = None,
    ) -> None:
        """`engine` returns the class of the wrapped model, once the Trainer has prepared it.

        `verify` returns what was found to run as the config asks for; it raises TrainingError.
        `optimizer_states` returns the dtypes of the optimizer's states, after the first step.
        `watch` begins to watch the engine, once the Trainer has prepared it.
        """
        self._context = context
        self._config = config
        self._timer = timer
        self._start = start
        self._flops = flops
        self._guard = guard
        self._numbers = numbers
        self._experts = experts
        self._expert_load: dict[str, float] = {}
        self._objective = objective
        self._objective_figures: dict[str, float] = {}
        self._stream = stream
        self._data = data
        self._counts: StepCounts | None = None
        self._begun = self._first_step_open = False
        self._process = psutil.Process()
        self._speeds = StepSpeeds()
        self._engine, self._verify, self._optimizer_states = engine, verify, optimizer_states
        self._begin_watch = watch
        self._profiler = profiler or StepProfiler(context.folder, rank=context.rank)
        self._watch: EngineWatch | None = None
        self.stopped = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the start event: the engine is ready, and is what the config asks for."""
        verified = self._verify()
        detail = "; ".join(
            value if name == "engine" else f"{name} {value}" for name, value in verified.items()
        )
        self._context.emit(PhaseEvent(name="engine", state="end", detail=detail))
        update = {
            "total_steps": state.max_steps,
            "first_step": state.global_step + 1,
            "engine": self._engine(),
            "verified": verified,
        }
        self._restart(update)
        if self._begin_watch is not None:
            self._watch = self._begin_watch()
        if self._stream is not None:
            self._stream.begin(state.global_step)

    def _restart(self, update: dict[str, Any]) -> None:
        """Write the start event once more, with what is known by now."""
        self._start = self._start.model_copy(update=update)
        self._context.emit(self._start)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the first step; an evaluation before training has ended."""
        if not self._begun:
            self._begun = self._first_step_open = True
            self._context.emit(PhaseEvent(name="first_step", state="begin"))
            self._timer.mark()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End what counts as the optimizer's step."""
        self._timer.parts.enter("between")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the step, for a failure in it; profile, if this is the first step to."""
        self._context.step = state.global_step + 1
        if self._profiler.begin(self._context.step):
            self._context.emit(
                PhaseEvent(name=profile.PHASE, state="begin", detail=self._profiler.words)
            )
            if self._profiler.is_asked_for:
                self._context.emit(PhaseEvent(name=profile.REQUEST_PHASE, state="end"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Decide, alike on all workers, whether to stop, save or evaluate after this step."""
        stop = self._context.is_main and self._context.stop_requested()
        step, every = state.global_step, self._config.checkpoint.every_steps
        finished = self._stream is not None and self._stream.is_finished(step)
        share = self._stream.share(step) if self._stream is not None else 0.0
        self._counts = self._timer.reduce(
            device=args.device,
            stop=stop,
            finished=finished,
            progress=share,
            profile=self._profiler.asks(),
        )
        if self._counts.profile:
            self._profiler.plan(step + 1, step + self._counts.profile)
        if self._experts is not None:
            self._expert_load = self._experts.reduce(args.device)
        if self._objective is not None:
            self._objective_figures = self._objective.take(args.device)
        last = step >= state.max_steps
        if self._stream is not None:
            counts = self._counts
            last = self._stream.end_step(
                state, control, finished=counts.finished, progress=counts.progress
            )
            if state.max_steps != self._start.total_steps:
                self._restart({"total_steps": state.max_steps})
        if self._counts.stop and not last:
            self.stopped = control.should_save = control.should_training_stop = True
        elif every and step % every == 0 and not last:
            control.should_save = True
        evaluate_every = self._config.evaluation.every_steps
        if evaluate_every and step % evaluate_every == 0 and not last and not self.stopped:
            control.should_evaluate = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write the step; its loss has been read from the device, so it has really ended.

        Transformers' Trainer has averaged the loss over all workers. Raises DivergedError on all of
        them in the same step.
        """
        if self._counts is None or not logs or "loss" not in logs:
            return
        step_time_s, data_wait_s = self._timer.mark()
        is_first, self._first_step_open = self._first_step_open, False
        reducer_wait_s = self._watch.reducer_wait_s() if self._watch is not None else None
        parts = self._part_seconds(step_time_s, reducer_wait_s)
        self._beat(state.global_step, step_time_s, parts, is_saved=control.should_save)
        if self._context.is_main:
            data_wait_s = parts.pop("data_wait_s", min(data_wait_s, step_time_s))
            if not is_first and not self._profiler.is_on:
                self._speeds.add(step_time_s, wait_s=data_wait_s, tokens=self._counts.tokens)
            self._context.emit(
                self._step_event(state, logs, self._counts, step_time_s, data_wait_s).model_copy(
                    update=parts
                )
            )
            if is_first:
                detail = f"optimizer states {self._optimizer_states()}"
                self._context.emit(PhaseEvent(name="first_step", state="end", detail=detail))
        self._guard.check_step(
            state.global_step, loss=logs["loss"], grad_norm=logs.get("grad_norm")
        )
        if self._stream is not None and self._stream.is_due(state.global_step):
            self._stream.report(state.global_step)
        self._end_profile(state, is_last=state.global_step >= state.max_steps or self.stopped)
        if is_first:
            if self._context.is_main:
                self._context.begun()
            self._report_processes()
            self._check_flops()
            if self._context.is_main and self._watch is not None:
                self._restart(self._watch.constants(self._start.dtype))
            self._timer.mark()

    def _end_profile(self, state: Any, *, is_last: bool) -> None:
        """Write the profile whose last step has ended; it counts in no step's time."""
        context = self._context
        if not self._profiler.is_due(state.global_step, is_last=is_last):
            return
        if context.beat is not None:  # To write the files takes longer than a step.
            context.beat.phase(profile.PHASE)
        event, standing = self._profiler.end(state.global_step)
        standings = gather(standing)  # The files of all workers are there by now.
        event = event.model_copy(update={"groups": grouped(standings)[:MOST_GROUPS]})
        context.emit(event)
        if context.is_main:
            folder = Path(event.path)
            context.emit(
                announced(
                    folder,
                    what=PROFILE,
                    size_bytes=size_bytes(folder),
                    journal=context.visible,
                    kept_at=str(folder) if context.is_kept else "",
                )
            )
        context.emit(PhaseEvent(name=profile.PHASE, state="end"))
        self._timer.mark()

    def _beat(
        self, step: int, step_time_s: float, parts: dict[str, float], *, is_saved: bool
    ) -> None:
        """Say on this node that the step has ended, and whether a save follows."""
        beat, context = self._context.beat, self._context
        if beat is None:
            return
        beat.step(
            step,
            time_s=step_time_s,
            data_s=parts.get("data_wait_s"),
            others_s=parts.get("communication_s"),
            host_s=parts.get("offload_s"),
        )
        context.rest = "save" if is_saved else ""
        beat.phase(context.rest)

    def _report_processes(self) -> None:
        """Write how each worker process was started; rank 0 writes for all, for it has the journal.

        Takes tens of milliseconds, once, and counts in no step's time.
        """
        warm, reason = start_report()
        mine = (warm, reason, _private_bytes(self._process))
        for rank, (warm, reason, size) in enumerate(gather(mine)):
            self._context.emit(
                ProcessEvent(role="worker", rank=rank, warm=warm, reason=reason, private_bytes=size)
            )

    def _check_flops(self) -> None:
        """Check the count of FLOPs against PyTorch's, once a model; counts in no step's time."""
        warning = self._flops.check() if self._flops else None
        if warning is not None:
            self._context.emit(warning)

    def _step_event(
        self, state: Any, logs: Any, counts: StepCounts, step_time_s: float, data_wait_s: float
    ) -> StepEvent:
        count = self._flops
        flops = count(counts) if count else Flops()
        if self._profiler.is_on:
            flops = Flops(required=flops.required)
        utilization = self._utilization(
            None if self._profiler.is_on else flops.required, step_time_s
        )
        if utilization is not None and possible(utilization) is None:
            self._reject_peak(state.global_step, flops.required, step_time_s)
        return StepEvent(
            step=state.global_step,
            epoch=state.epoch,
            loss=logs["loss"],
            learning_rate=logs.get("learning_rate"),
            grad_norm=logs.get("grad_norm"),
            step_time_s=step_time_s,
            data_wait_s=data_wait_s,
            compute_s=step_time_s - data_wait_s,
            tokens=counts.tokens,
            tokens_per_second=None if self._profiler.is_on else counts.tokens / step_time_s,
            flops=flops.required,
            profiled=self._profiler.is_on or None,
            mfu=possible(utilization),
            mfu_palm=possible(self._utilization(flops.palm, step_time_s)),
            hfu=possible(self._utilization(flops.executed, step_time_s)),
            recomputed=possible(self._utilization(flops.recomputed, step_time_s)),
            peak_memory_bytes=(
                torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
            ),
            host_memory_bytes=self._process.memory_info().rss,
            values={**self._objective_figures, **self._numbers.take(), **self._expert_load} or None,
        )

    def _part_seconds(self, step_time_s: float, reducer_wait_s: float | None) -> dict[str, float]:
        """Return the parts of the step as fields of its event; without those not measured."""
        if self._watch is None:
            return {}
        taken = self._timer.taken
        passes_s, wait_s = taken.get("passes", 0.0), reducer_wait_s or 0.0
        hidden_s = min(wait_s, passes_s)  # The reducer waits inside of the backward pass.
        parts = {
            "data_wait_s": min(taken.get("data", 0.0), step_time_s),
            "passes_s": passes_s - hidden_s,
            "optimizer_s": taken.get("optimizer", 0.0),
            "offload_s": taken.get("offload", 0.0),
            "between_s": taken.get("between", 0.0),
        }
        if self._watch.sees_communication:
            parts["communication_s"] = taken.get("communication", 0.0) + hidden_s
        return parts

    def _utilization(self, flops: float | None, time_s: float) -> float | None:
        peak, workers = self._start.peak_flops, self._start.num_workers
        return mfu(flops=flops, time_s=time_s, peak_flops=peak, num_workers=workers)

    def _reject_peak(self, step: int, flops: float | None, step_time_s: float) -> None:
        """Reject a peak that a step exceeded: it is wrong, and so is every MFU of the run."""
        reached, peak = flops_per_second(flops=flops, time_s=step_time_s), self._start.peak_flops
        self._context.emit(
            WarningEvent(
                message=f"Step {step} computed {(reached or 0) / 1e9:,.1f} GFLOPS, more than the "
                f"peak of {(peak or 0) * self._start.num_workers / 1e9:,.1f} GFLOPS "
                f"({self._start.peak_source}). The peak is wrong, so MFU is not shown.",
                remedy=f"set {PEAK_ENV_VAR} in the cluster template's env to the peak of one"
                " device; a measured one is measured again by the next run on an idle machine",
            )
        )
        if self._start.peak_source.startswith("measured"):
            forget_cpu_peak(self._start.dtype, self._context.cache)
        self._restart({"peak_flops": None, "peak_source": REJECTED_PEAK})

    def take_peak(self, peak_flops: float | None) -> None:
        """Take the CPU's peak as it is known after the training, where it is higher than before.

        All utilizations of the run are of this one.
        """
        before = self._start.peak_flops
        is_measured = self._start.peak_source.startswith("measured")
        if is_measured and before is not None and peak_flops is not None and peak_flops > before:
            self._restart({"peak_flops": peak_flops})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the rows of the last steps, and what was reached beside what was planned."""
        self._context.rest = "end"
        self._context.tell_phase()
        if self._watch is not None:
            self._watch.close()
        self._profiler.close()
        if self._stream is not None:
            self._stream.report(state.global_step, is_end=True)
        planned, measured = self._start.planned, self._speeds.measured()
        if planned is not None and measured is not None:
            self._restart({"planned": planned.model_copy(update={"measured": measured})})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the checkpoint complete: all workers have written their part."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._stream is not None:
            self._stream.report(state.global_step)
            self._stream.save(path)
        if self._data is not None and self._context.is_main:
            self._data.write(path)
        num_kept = self._config.checkpoint.keep
        event = complete_checkpoint(self._context, path, step=state.global_step, num_kept=num_kept)
        if self._context.is_main:
            duration_s, _ = self._timer.mark()
            timed = {"duration_s": duration_s} if isinstance(event, CheckpointEvent) else {}
            self._context.emit(event.model_copy(update=timed))
        self._context.rest = ""
        self._context.tell_phase()
        self._timer.mark()


def _private_bytes(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.Error, OSError):
        return None  # This kernel does not report it.
