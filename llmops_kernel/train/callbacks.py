"""Turns the Trainer's events into the run's journal. Runs on every worker; rank 0 writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from transformers import TrainerCallback

from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.metrics.events import (
    CheckpointEvent,
    PhaseEvent,
    ProcessEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.metrics.mfu import mfu
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.keeping import keep
from llmops_kernel.train.meter import StepCounts, StepMeter
from llmops_kernel.train.work import FlopsOf
from llmops_kernel.warm.told import told


class JournalCallback(TrainerCallback):
    """Journals start, steps and checkpoints; asks all workers to stop in the same step."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        config: TrainingConfig,
        meter: StepMeter,
        start: StartEvent,
        flops_of: FlopsOf,
    ) -> None:
        self._context = context
        self._config = config
        self._meter = meter
        self._start = start
        self._flops_of = flops_of
        self._counts: StepCounts | None = None
        self._begun = self._first_step_open = False
        self._warned_nan = False
        self._process = psutil.Process()
        self.stopped = False
        self.engine: Callable[[], str] = lambda: ""
        """Class of the wrapped model; known once the Trainer has prepared it."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The engine is ready; say all there is to know before the first step."""
        self._context.emit(PhaseEvent(name="engine", state="end"))
        update = {
            "total_steps": state.max_steps,
            "first_step": state.global_step + 1,
            "engine": self.engine(),
        }
        self._context.emit(self._start.model_copy(update=update))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The evaluation before training, if any, is over: from here the first step counts."""
        if not self._begun:
            self._begun = self._first_step_open = True
            self._context.emit(PhaseEvent(name="first_step", state="begin"))
            self._meter.mark()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        asked = self._context.is_main and self._context.stop_requested()
        self._counts = self._meter.reduce(device=args.device, stop=asked)
        step, every = state.global_step, self._config.checkpoint.every_steps
        last = step >= state.max_steps
        if self._counts.stop and not last:
            self.stopped = control.should_save = control.should_training_stop = True
        elif every and step % every == 0 and not last:
            control.should_save = True
        evaluate_every = self._config.evaluation.every_steps
        if evaluate_every and step % evaluate_every == 0 and not last and not self.stopped:
            control.should_evaluate = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The loss has been read back from the device, so the step has really ended."""
        if self._counts is None or not logs or "loss" not in logs:
            return
        step_time_s, data_wait_s = self._meter.mark()
        is_first, self._first_step_open = self._first_step_open, False
        if self._context.is_main:
            data_wait_s = min(data_wait_s, step_time_s)
            self._context.emit(
                self._step_event(state, logs, self._counts, step_time_s, data_wait_s)
            )
            if is_first:
                self._context.emit(PhaseEvent(name="first_step", state="end"))
            self._warn_of_nan(state.global_step, logs["loss"])
        if is_first:
            self._tell_of_processes()
            self._meter.mark()

    def _tell_of_processes(self) -> None:
        """Rank 0 alone has a journal, so it tells of all.

        Tens of milliseconds, once, counted in no step's time.
        """
        warm, reason = told()
        mine = (warm, reason, _private_bytes(self._process))
        all_ranks: list[Any] = [mine]
        if dist.is_available() and dist.is_initialized():
            all_ranks = [None] * dist.get_world_size()
            dist.all_gather_object(all_ranks, mine)
        for rank, (warm, reason, size) in enumerate(all_ranks):
            self._context.emit(
                ProcessEvent(role="worker", rank=rank, warm=warm, reason=reason, private_bytes=size)
            )

    def _step_event(
        self, state: Any, logs: Any, counts: StepCounts, step_time_s: float, data_wait_s: float
    ) -> StepEvent:
        flops = self._flops_of(counts.tokens, counts.sum_squared_lengths)
        return StepEvent(
            step=state.global_step,
            epoch=state.epoch,
            loss=_finite(logs["loss"]),
            learning_rate=logs.get("learning_rate"),
            grad_norm=_finite(logs.get("grad_norm")),
            step_time_s=step_time_s,
            data_wait_s=data_wait_s,
            compute_s=step_time_s - data_wait_s,
            tokens=counts.tokens,
            tokens_per_second=counts.tokens / step_time_s,
            flops=flops,
            mfu=mfu(
                flops=flops,
                time_s=step_time_s,
                peak_flops=self._start.peak_flops,
                num_workers=self._start.num_workers,
            ),
            peak_memory_bytes=(
                torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
            ),
            host_memory_bytes=self._process.memory_info().rss,
        )

    def _warn_of_nan(self, step: int, loss: float) -> None:
        if math.isfinite(loss) or self._warned_nan:
            return
        self._warned_nan = True
        self._context.emit(
            WarningEvent(
                message=f"The loss is {loss} at step {step}.",
                remedy="stop the run; lower optimizer.learning_rate, add warmup_steps",
            )
        )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """All workers have written; only now is the checkpoint one to resume from."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        num_kept = self._config.checkpoint.keep
        told = keep(self._context, path, step=state.global_step, num_kept=num_kept)
        if self._context.is_main:
            duration_s, _ = self._meter.mark()
            timed = {"duration_s": duration_s} if isinstance(told, CheckpointEvent) else {}
            self._context.emit(told.model_copy(update=timed))
        self._meter.mark()


def _private_bytes(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_full_info().uss)
    except (psutil.Error, OSError):
        return None  # A kernel that does not show it.


def _finite(value: float | None) -> float | None:
    """JSON has no NaN; an unknown number is None."""
    return value if value is not None and math.isfinite(value) else None
