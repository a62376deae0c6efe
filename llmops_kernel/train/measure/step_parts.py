"""Divides the time of an optimizer step among what a worker does in it, without overlap.

On a CPU by the clock. On a GPU by CUDA events on the compute stream, read once the loss of the step
has been read, so that no step waits for them. There a part lasts as long as the stream is in it: a
wait for data that is hidden behind kernels still queued is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Final, Literal, get_args

import torch
import torch.distributed as dist

from llmops_kernel.driver.beats import PARTS, BeatWriter
from llmops_kernel.train.measure.device import measured_ceiling
from llmops_kernel.train.parallelism.strategy import wrapped
from llmops_kernel.train.parallelism.zero import offloads_optimizer

Part = Literal["between", "data", "passes", "optimizer", "offload", "communication"]
"""`passes`: forward and backward. `offload`: the step of an optimizer whose states are in host
memory. `between`: what is in no other part, such as callbacks, the journal, counting of tokens."""


_CODES: Final[dict[Part, int]] = {part: PARTS.index(part) for part in get_args(Part)}


class StepParts:
    """The parts of the time since the last `take`; one ends where the next begins."""

    def __init__(
        self,
        *,
        on_gpu: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        beat: BeatWriter | None = None,
    ) -> None:
        self.on_gpu, self._beat = on_gpu, beat
        self._stamp: Callable[[], Any] = _event if on_gpu else clock
        self._stamps: list[tuple[Part, Any]] = [("between", self._stamp())]

    def enter(self, part: Part) -> Part:
        """Begin a part; return the one that ends."""
        before = self._stamps[-1][0]
        if before != part:
            self._stamps.append((part, self._stamp()))
            if self._beat is not None:
                self._beat.enter(_CODES[part])
        return before

    @contextmanager
    def inside(self, part: Part) -> Iterator[None]:
        """Count a block as a part, then go on with the one before."""
        before = self.enter(part)
        try:
            yield
        finally:
            self.enter(before)

    def take(self) -> dict[Part, float]:
        """Return the seconds of each part since the last call."""
        now, last = self._stamp(), self._stamps[-1][0]
        if self.on_gpu:
            now.synchronize()  # Returns at once: the loss has been read by now.
        ends = [stamp for _, stamp in self._stamps[1:]]
        seconds: dict[Part, float] = {}
        for (part, begin), end in zip(self._stamps, [*ends, now], strict=True):
            lasted = begin.elapsed_time(end) / 1000 if self.on_gpu else end - begin
            seconds[part] = seconds.get(part, 0.0) + lasted
        self._stamps = [(last, now)]
        return seconds


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


# --- Communication that the computation waits for, and the optimizer's step of DeepSpeed ---


class EngineWatch:
    """Watches the engine of a training: what it waits for, and where its optimizer steps."""

    def __init__(self, trainer: Any, parts: StepParts) -> None:
        """Watch until `close`. On GPUs the collectives of ZeRO and FSDP run on streams of their
        own, which nothing here sees.
        """
        self._parts, self._trainer = parts, trainer
        self._engine = wrapped(trainer)
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        sampled = "_set_ddp_runtime_logging_sample_rate"
        self._has_reducer = several and hasattr(self._engine, sampled)
        self._last_backward = 0
        self._restore: list[Callable[[], None]] = []
        self.sees_communication = not several or self._has_reducer or not parts.on_gpu
        if self._has_reducer:
            self._engine._set_ddp_runtime_logging_sample_rate(1)
        if several and not parts.on_gpu:
            self._time(dist.Work, "wait", "communication")
        if trainer.is_deepspeed_enabled:
            is_far = offloads_optimizer(self._engine)
            self._time(self._engine.optimizer, "step", "offload" if is_far else "optimizer")

    def _time(self, owner: Any, name: str, part: Part) -> None:
        """Let the calls of a method by this thread count as a part."""
        method, thread, is_own = getattr(owner, name), threading.get_ident(), name in vars(owner)

        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return method(*args, **kwargs)
            with self._parts.inside(part):
                return method(*args, **kwargs)

        def restore() -> None:
            if is_own:
                setattr(owner, name, method)
            else:
                delattr(owner, name)

        setattr(owner, name, timed)
        self._restore.append(restore)

    def reducer_wait_s(self) -> float | None:
        """Return seconds from the end of the last backward pass to that of its last all-reduce.

        PyTorch's own timers of `DistributedDataParallel`. None for another engine, and for a step
        that they did not see, as the first.
        """
        if not self._has_reducer:
            return None
        self._engine.logger.set_runtime_stats_and_log()
        times = self._engine._get_ddp_logging_data()
        ended = times.get("backward_comm_time_end", 0)
        if not ended or ended == self._last_backward:
            return None
        self._last_backward = ended
        hidden = times.get("backward_compute_comm_overlap_time", 0)
        return float(max(0, times.get("backward_comm_time", 0) - hidden)) / 1e9

    def constants(self, dtype: str) -> dict[str, float | None]:
        """Measure once what does not change; returns fields of the start event.

        Called by rank 0 alone, after the first step. An objective with passes of its own is not
        asked: what it does in one is not one call of the model.
        """
        inputs, self._trainer.first_inputs = self._trainer.first_inputs, {}
        share = None
        if inputs and not self._trainer.has_objective:
            network = self._trainer.accelerator.unwrap_model(self._trainer.model)
            share = fixed_share(network, self._trainer._prepare_inputs(inputs))
        ceiling = measured_ceiling(dtype) if self._parts.on_gpu else None
        return {"fixed_share": share, "ceiling_flops": ceiling}

    def close(self) -> None:
        """Leave the engine and PyTorch as they were."""
        while self._restore:
            self._restore.pop()()


# --- What a micro batch costs whatever its size ---

_REPEATS: Final = 3
_LONG_S: Final = 0.5


def fixed_share(network: Any, inputs: dict[str, Any]) -> float | None:
    """Return the time of a forward pass over one token, by that over a micro batch; 0..1.

    What it takes is there at any size: Python, the launch of each operation, reading the weights
    once. None where the input is not one of tokens, or the model cannot be asked alone, as one
    whose weights are spread over the workers. Changes nothing: no gradients, random numbers as
    before.
    """
    ids: Any = inputs.get("input_ids")
    sharded = ("ds_id", "device_mesh")
    if not torch.is_tensor(ids) or ids.dim() != 2 or ids.numel() < 2:
        return None
    if any(hasattr(one, name) for one in network.parameters() for name in sharded):
        return None
    whole = {name: value for name, value in inputs.items() if torch.is_tensor(value)}
    one = {name: value[:1, :1] for name, value in whole.items() if value.shape == ids.shape}
    with suppress(Exception), torch.random.fork_rng(), torch.no_grad():
        shortest = _shortest_s(network, one)
        longest = _shortest_s(network, whole)
        return min(1.0, shortest / longest) if longest > 0 else None
    return None  # A model of the user may refuse such an input.


def _shortest_s(network: Any, inputs: dict[str, Any]) -> float:
    times: list[float] = []
    for _ in range(_REPEATS + 1):
        if inputs["input_ids"].is_cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        network(**inputs)
        if inputs["input_ids"].is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        if sum(times) > _LONG_S:
            break
    return min(times)
