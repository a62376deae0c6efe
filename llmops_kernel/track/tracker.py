"""Turns a script's reports into the events of its run. Rank 0 writes; every rank counts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.metrics.flops import mfu, possible
from llmops_kernel.track.model import FlopsOf, ModelFacts, describe_model, unwrapped


@dataclass(frozen=True)
class Peak:
    """The device of one worker and how fast it could be."""

    device: str
    flops: float | None
    """Dense, FLOP per second."""
    source: str = ""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint in the run's folder."""

    path: Path
    step: int


class Worker(Protocol):
    """The services that the tracker needs from its process."""

    rank: int
    world_size: int

    def emit(self, event: Event) -> None: ...
    def should_stop(self) -> bool: ...
    def note_stop_request(self, step: int) -> None: ...
    def peak(self, dtype: str, device: str) -> Peak:
        """Return the peak of the device ("cpu", "cuda") at a dtype; called once."""

    def flops_of(self, model: Any) -> FlopsOf | None:
        """Count a model that no table of architectures knows; None where that cannot be done."""

    def host_memory_bytes(self) -> int | None: ...
    def beat(self, step: int, *, time_s: float | None, data_s: float | None, is_last: bool) -> None:
        """Say on this node that a step has ended; called on every rank, must be cheap."""

    @property
    def is_profiled(self) -> bool:
        """Whether the step that has just ended was profiled."""

    def end_step(self, step: int, *, time_s: float | None, is_last: bool) -> bool:
        """Begin, or end, a profile behind a step; return whether that took time. Called on every
        rank, must be cheap.
        """

    def keep_checkpoint(self, path: Path, *, step: int, keep: int) -> CheckpointEvent: ...
    def newest_checkpoint(self) -> StoredCheckpoint | None: ...
    def agreed_checkpoint(self) -> StoredCheckpoint | None:
        """Return the newest one that rank 0 sees, on each rank. Called equally often on all."""

    def start_facts(self) -> dict[str, Any]:
        """Return fields of StartEvent that the process knows: versions, hosts, node_ids."""


class Tracker:
    """The tracker of a process. What is not reported stays unknown; no number is estimated."""

    def __init__(self, worker: Worker, *, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._counter = StepCounter(clock=clock)
        self._logged = Logged()
        self._facts: dict[str, Any] = {}
        self._model: Any = None
        self._model_facts: ModelFacts | None = None
        self._dtype = ""
        self._sequence_length: int | None = None
        self._reported: StartEvent | None = None
        self._peak: Peak | None = None
        self._first_is_done = self._was_asked = False
        self._warned: set[str] = set()

    @property
    def _is_main(self) -> bool:
        return self._worker.rank == 0

    def start(
        self,
        *,
        total_steps: int | None = None,
        first_step: int | None = None,
        model: Any = None,
        dtype: str | None = None,
        global_batch_size: int | None = None,
        sequence_length: int | None = None,
    ) -> None:
        facts = {
            "total_steps": total_steps,
            "first_step": first_step,
            "global_batch_size": global_batch_size,
        }
        self._facts |= {name: int(value) for name, value in facts.items() if value is not None}
        self._dtype = dtype or self._dtype
        self._sequence_length = sequence_length or self._sequence_length
        if first_step is not None and not self._first_is_done:
            self._counter.continue_after(int(first_step) - 1)
        if self._is_main:
            self._take_model(model)
            self._report_start(first_step=self._expected_first_step())
        self._counter.mark()

    def _expected_first_step(self) -> int:
        """Return the step after a resumed script's checkpoint; its first report corrects it."""
        if self._counter.last_step:
            return self._counter.last_step + 1
        newest = self._worker.newest_checkpoint()
        return newest.step + 1 if newest else 1

    def _take_model(self, model: Any) -> bool:
        if model is None or model is self._model:
            return False
        facts = describe_model(model)
        if facts.flops_of is None:
            facts = replace(facts, flops_of=self._worker.flops_of(unwrapped(model)))
        self._model, self._model_facts = model, facts
        return True

    def _report_start(self, *, first_step: int) -> None:
        """Report what is known; again when more has become known since."""
        model = self._model_facts
        dtype = self._dtype or (model.dtype if model else "")
        if model is not None and dtype and self._peak is None:
            self._peak = self._worker.peak(dtype, model.device)
        facts: dict[str, Any] = {
            "total_steps": 0,
            "first_step": first_step,
            "global_batch_size": 0,
            **(self._worker.start_facts() if self._reported is None else _kept(self._reported)),
            **self._facts,
            "num_workers": self._worker.world_size,
            "dtype": dtype,
            "device": self._peak.device if self._peak else "",
            "peak_flops": self._peak.flops if self._peak else None,
            "peak_source": self._peak.source if self._peak else "",
        }
        if model is not None:
            facts |= {"num_params": model.num_params, "num_trainable": model.num_trainable}
            facts["engine"] = model.name
        if self._reported is not None:
            facts["first_step"] = self._reported.first_step
        event = StartEvent(**facts)
        if event != self._reported:
            self._reported = event
            self._worker.emit(event)

    def step(
        self,
        *,
        loss: Number | None = None,
        tokens: int | None = None,
        tokens_per_worker: int | None = None,
        total_tokens: int | None = None,
        model: Any = None,
        learning_rate: float | None = None,
        grad_norm: Number | None = None,
        step: int | None = None,
        epoch: float | None = None,
        sequence_length: int | None = None,
        data_wait_s: float | None = None,
        flops: Number | None = None,
    ) -> None:
        if not self._is_main:
            counted_step = self._counter.count(step=step, tokens=None)
            self._beat(counted_step, data_wait_s)
            self._end_step(counted_step)
            return
        value = number(loss)  # Waits for the device, so that the step has really ended.
        self._sequence_length = sequence_length or self._sequence_length
        together = all_tokens(
            num_workers=self._worker.world_size,
            tokens=tokens,
            tokens_per_worker=tokens_per_worker,
            total_tokens=total_tokens,
        )
        self._warn_of_tokens(is_unclear=together is None and tokens is not None)
        counted_step = self._counter.count(step=step, tokens=together, flops=number(flops))
        self._beat(counted_step, data_wait_s)
        if self._take_model(model):  # To count it counts in no step's time.
            self._counter.mark()
        self._report_start(first_step=counted_step.step)
        self._report_step(
            counted_step,
            loss=value,
            learning_rate=number(learning_rate),
            grad_norm=number(grad_norm),
            epoch=epoch,
            data_wait_s=data_wait_s,
        )
        self._end_step(counted_step)

    def _beat(self, counted: CountedStep, data_wait_s: float | None) -> None:
        is_last = self._is_last(counted)
        self._worker.beat(counted.step, time_s=counted.time_s, data_s=data_wait_s, is_last=is_last)

    def _end_step(self, counted: CountedStep) -> None:
        is_last = self._is_last(counted)
        if self._worker.end_step(counted.step, time_s=counted.time_s, is_last=is_last):
            self._counter.mark()

    def _is_last(self, counted: CountedStep) -> bool:
        total = self._facts.get("total_steps")
        return total is not None and 0 < total <= counted.step

    def log(self, numbers: Mapping[str, Number]) -> None:
        if self._is_main:
            for problem in self._logged.add(numbers):
                self._warn(problem, "see the numbers of a step in track.step")

    def _report_step(self, counted_step: CountedStep, **values: float | None) -> None:
        logged = self._logged.take()
        for name in OF_STEP & logged.keys():
            value = logged.pop(name)
            values[name] = value if values[name] is None else values[name]
        wait_s, time_s = values["data_wait_s"], counted_step.time_s
        flops, is_profiled = self._flops(counted_step), self._worker.is_profiled
        self._worker.emit(
            StepEvent(
                step=counted_step.step,
                step_time_s=time_s,
                compute_s=None if wait_s is None or time_s is None else max(0.0, time_s - wait_s),
                tokens=counted_step.tokens,
                tokens_per_second=None if is_profiled else counted_step.tokens_per_second,
                flops=flops,
                mfu=None if is_profiled else self._mfu(flops, time_s),
                profiled=is_profiled or None,
                peak_memory_bytes=_device_memory_bytes(),
                host_memory_bytes=self._worker.host_memory_bytes(),
                values=logged or None,
                **values,
            )
        )
        if not self._first_is_done:
            self._first_is_done = True
            self._worker.emit(PhaseEvent(name="first_step", state="end"))

    def _flops(self, counted_step: CountedStep) -> float | None:
        if counted_step.flops is not None:
            return counted_step.flops
        facts = self._model_facts
        if facts is None or facts.flops_of is None or counted_step.tokens is None:
            return None
        return facts.flops_of(
            counted_step.tokens, counted_step.tokens * (self._sequence_length or 0)
        )

    def _mfu(self, flops: float | None, time_s: float | None) -> float | None:
        if self._peak is None or time_s is None:
            return None
        value = mfu(
            flops=flops,
            time_s=time_s,
            peak_flops=self._peak.flops,
            num_workers=self._worker.world_size,
        )
        if value is not None and possible(value) is None:
            self._warn(
                f"A step reached {value:.0%} of the peak of {self._peak.device}, so the peak"
                f" ({self._peak.source or 'unknown source'}) is wrong; MFU is not shown.",
                "set dtype= in track.start to the dtype of the matrix products, or"
                " LLMOPS_PEAK_TFLOPS to the peak of one device",
            )
        return possible(value)

    def _warn_of_tokens(self, *, is_unclear: bool) -> None:
        if not is_unclear:
            return
        self._warn(
            f"tokens= of one of {self._worker.world_size} workers does not say how many all"
            " workers trained on, so tokens per second and MFU are unknown.",
            "pass track.step(tokens_per_worker=...) where all workers have the same number, or"
            " total_tokens= with the sum over all workers",
        )

    def _warn(self, message: str, remedy: str = "") -> None:
        if message not in self._warned:
            self._warned.add(message)
            self._worker.emit(WarningEvent(message=message, remedy=remedy))

    def evaluation(
        self,
        metrics: Mapping[str, Number],
        *,
        step: int | None = None,
        num_rows: int = 0,
        duration_s: float | None = None,
        samples: Iterable[Mapping[str, str]] = (),
    ) -> None:
        if self._is_main:
            numbers = {str(name): number(value) for name, value in metrics.items()}
            self._worker.emit(
                EvalEvent(
                    step=self._counter.last_step if step is None else int(step),
                    metrics={name: value for name, value in numbers.items() if value is not None},
                    num_rows=num_rows,
                    duration_s=duration_s,
                    samples=tuple({k: str(v) for k, v in row.items()} for row in samples),
                )
            )
        self._counter.mark()

    def checkpoint(self, path: Path, *, step: int | None = None, keep: int = 2) -> None:
        saved_step = self._counter.last_step if step is None else int(step)
        if self._is_main:
            try:
                self._worker.emit(self._worker.keep_checkpoint(path, step=saved_step, keep=keep))
            except (OSError, StoreError) as error:
                self._warn(
                    f"The checkpoint of step {saved_step} could not be kept: {_reason(error)}",
                    getattr(error, "remedy", "")
                    or "check the path given to track.checkpoint and the free disk space",
                )
        self._counter.mark()

    def resume_checkpoint(self) -> Path | None:
        newest = self._worker.agreed_checkpoint()
        if newest is None:
            return None
        if not self._first_is_done:
            self._counter.continue_after(newest.step)
        return newest.path

    def should_stop(self, *, step: int | None = None) -> bool:
        stop = self._worker.should_stop()
        if stop and self._is_main and not self._was_asked:
            self._was_asked = True
            self._worker.note_stop_request(self._counter.last_step if step is None else int(step))
        return stop


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, StoreError) else str(error)


def _kept(event: StartEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("versions", "hosts", "node_ids")}


def _device_memory_bytes() -> int | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())


# --- Counter of steps, tokens and time. Pure: clock and number of workers are arguments ---


Number = SupportsFloat
"""A number, or a tensor of one element."""


@dataclass(frozen=True)
class CountedStep:
    """An optimizer step; the mean if there were several since the last report."""

    step: int
    time_s: float | None
    tokens: int | None
    tokens_per_second: float | None
    flops: float | None = None
    """As the script said."""


class StepCounter:
    """Numbers the steps and divides time and tokens among them."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marked_s: float | None = None
        self.last_step = 0

    def mark(self) -> None:
        """Let the next step begin now: after an evaluation, a checkpoint, or `start`."""
        self._marked_s = self._clock()

    def continue_after(self, step: int) -> None:
        self.last_step = step

    def count(
        self, *, step: int | None, tokens: int | None, flops: float | None = None
    ) -> CountedStep:
        """Count a report; `tokens` and `flops` are of all workers, since the last report."""
        now_s = self._clock()
        number = self.last_step + 1 if step is None else int(step)
        elapsed_s = None if self._marked_s is None else now_s - self._marked_s
        # A script may report each tenth step only.
        steps = max(1, number - self.last_step)
        if elapsed_s is None and steps > 1:
            steps, tokens, flops = 1, None, None  # Where the first of them began is unknown.
        self._marked_s, self.last_step = now_s, number
        return CountedStep(
            step=number,
            time_s=None if elapsed_s is None else elapsed_s / steps,
            tokens=None if tokens is None else round(tokens / steps),
            tokens_per_second=tokens / elapsed_s if tokens is not None and elapsed_s else None,
            flops=None if flops is None else flops / steps,
        )


def all_tokens(
    *,
    num_workers: int,
    tokens: int | None = None,
    tokens_per_worker: int | None = None,
    total_tokens: int | None = None,
) -> int | None:
    """Return the tokens of all workers together; None when what is given does not say it."""
    if total_tokens is not None:
        return int(total_tokens)
    if tokens_per_worker is not None:
        return int(tokens_per_worker) * num_workers
    return int(tokens) if tokens is not None and num_workers == 1 else None


def number(value: Any) -> float | None:
    """Return a number or a tensor of one element as a float, NaN included."""
    if value is None:
        return None
    detach = getattr(value, "detach", None)
    return float(value if detach is None else detach())


# --- Numbers that a script logs, until the next step ---


MAX_NAMES = 50
"""Each name is a chart; more of them are a mistake, such as a name with the step in it."""
OF_STEP = frozenset({"loss", "learning_rate", "grad_norm", "epoch", "data_wait_s"})
"""Names that a step has itself: `track.log(loss=...)` is `track.step(loss=...)`."""
_RESERVED = frozenset(StepEvent.model_fields) - OF_STEP - {"stands_for"}
_NOT_IN_NAMES = re.compile(r"[^\w ./()%@:-]+", re.ASCII)


class Logged:
    """The numbers since the last step."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._values: dict[str, float] = {}

    def add(self, numbers: Mapping[str, Number]) -> list[str]:
        """Keep the numbers; return why some were left out, as sentences."""
        problems = []
        for raw_name, value in numbers.items():
            name = _NOT_IN_NAMES.sub("_", str(raw_name))
            try:
                converted = number(value)
            except (TypeError, ValueError, RuntimeError):
                problems.append(f"track.log takes numbers; {name} is a {type(value).__name__}.")
                continue
            if name in _RESERVED:
                problems.append(f"track.log cannot set {name}: the run measures it itself.")
            elif len(self._names | {name}) > MAX_NAMES:
                problems.append(f"track.log takes {MAX_NAMES} names; further ones are left out.")
            elif converted is not None:
                self._names.add(name)
                self._values[name] = converted
        return problems

    def take(self) -> dict[str, float]:
        """Return the numbers and forget them."""
        values, self._values = self._values, {}
        return values
