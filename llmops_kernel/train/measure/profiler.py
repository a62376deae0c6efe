"""Profiles steps of a training with PyTorch's profiler, on every worker in the same steps.

The operators' table and the tree of calls are computed from the same events as the timeline, which
is a file that Perfetto opens (ui.perfetto.dev; the format is Chrome's trace events). A script's
steps are profiled the same way.
"""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.modules import module as every_module

from llmops_kernel.config.models.sections import MOST_PROFILED
from llmops_kernel.driver.beats import Beat, born_ticks
from llmops_kernel.driver.stacks import Standing, stand
from llmops_kernel.metrics.events import ProfileEvent
from llmops_kernel.metrics.profile import OperatorTime
from llmops_kernel.store.files import scratch_folder
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.measure.call_tree import MICROSECONDS, call_tree, short_name

FOLDER: Final = "profiles"
"""Below the run's folder."""
MOST_OPERATORS: Final = 20


class StepProfiler:
    """Profiles the steps of the config, and those that are asked for while the run is under way."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        steps: tuple[int, int] | None = None,
        on_gpu: bool = False,
        names_modules: bool = True,
        requested: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`steps`: first and last step of the config. `requested` returns, on rank 0, a number of
        steps that somebody asks for, once for each request; 0: none. `names_modules`: the calls of
        modules are in the tree by their classes; a model that is compiled would be so again.
        """
        self._folder, self._rank, self._on_gpu = folder, rank, on_gpu
        self._steps, self._requested, self._clock = steps, requested, clock
        self._names_modules = names_modules
        self.is_asked_for = False
        """Whether it is, or has been, for a request and not for the config."""
        self._then: tuple[int, int] | None = None
        self._profiler: Any = None
        self._modules: _ModuleNames | None = None
        self._stack: _Stack | None = None
        self._begun_s = 0.0

    @classmethod
    def of(
        cls, context: WorkerContext, steps: tuple[int, int] | None, *, is_compiled: bool = False
    ) -> StepProfiler:
        """Return the profiler of a worker; its files are beside the checkpoints."""
        return cls(
            context.folder / FOLDER,
            rank=context.rank,
            steps=steps,
            on_gpu=context.use_gpu,
            names_modules=not is_compiled,
            requested=context.profile_requested,
        )

    @property
    def is_on(self) -> bool:
        """Whether the step that is computed is profiled."""
        return self._profiler is not None

    @property
    def words(self) -> str:
        """Return `steps 12 to 14` of the profile that is planned or under way."""
        return f"steps {self._steps[0]:,} to {self._steps[1]:,}" if self._steps else ""

    def asks(self) -> int:
        """Return how many steps somebody asks to profile, on rank 0."""
        return min(self._requested(), MOST_PROFILED) if self._rank == 0 else 0

    def plan(self, first: int, last: int) -> None:
        """Profile these steps, which somebody asks for, or as many after those that are on now."""
        self.is_asked_for = True
        if self._profiler is None or self._steps is None:
            self._steps = (first, last)
        else:
            now = self._steps[1]
            self._then = (now + 1, now + 1 + last - first)

    def begin(self, step: int) -> bool:
        """Begin to profile, if this is the first step to; return whether it is."""
        steps = self._steps
        if steps is None or self._profiler is not None or not steps[0] <= step <= steps[1]:
            return False
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(activities=activities, acc_events=True)
        profiler.__enter__()
        if self._on_gpu:
            torch.cuda.memory._record_memory_history()
        self._steps = (step, steps[1])  # A resumed run begins inside of them.
        self._profiler, self._begun_s = profiler, self._clock()
        self._modules = _ModuleNames() if self._names_modules else None
        self._stack = _Stack(self._rank)
        return True

    def is_due(self, step: int, *, is_last: bool = False) -> bool:
        """Return whether the profile ends with this step, which may be the last of the run."""
        return self.is_on and self._steps is not None and (step >= self._steps[1] or is_last)

    def end(self, step: int) -> tuple[ProfileEvent, Standing]:
        """Return the profile, once it is due, and where this process stood in one of its steps.

        Call it on all workers; each writes files of its own rank.
        """
        assert self._steps is not None
        assert self._stack is not None
        took_s = self._clock() - self._begun_s
        begun_s, profiler, stack, first = self._clock(), self._profiler, self._stack, self._steps[0]
        standing = stack.end()
        self.close()
        self._steps, self._then = self._then, None
        folder = self._folder / f"{first}-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        _write_timeline(profiler, folder / f"rank-{self._rank}.json.gz")
        if self._on_gpu:
            _write_memory(folder / f"rank-{self._rank}-memory.pickle")
        is_main = self._rank == 0
        event = ProfileEvent(
            first_step=first,
            last_step=step,
            path=str(folder),
            operators=operators_of(profiler.key_averages(), on_gpu=self._on_gpu) if is_main else (),
            calls=call_tree(profiler.events(), on_gpu=self._on_gpu) if is_main else (),
            time_in_steps_s=took_s,
        )
        writing_s = self._clock() - begun_s
        return event.model_copy(update={"writing_s": writing_s}), standing

    def close(self) -> None:
        """Give up a profile that is under way: the training ends by an error."""
        profiler, self._profiler = self._profiler, None
        if self._modules is not None:
            self._modules.remove()
            self._modules = None
        if profiler is not None:
            profiler.__exit__(None, None, None)


class _ModuleNames:
    """Notes the forward pass of each module in the profile, by the name of its class."""

    def __init__(self) -> None:
        self._open = threading.local()
        self._hooks = (
            every_module.register_module_forward_pre_hook(self._enter),
            every_module.register_module_forward_hook(self._leave, always_call=True),
        )

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        note = torch.autograd.profiler.record_function(type(module).__name__)
        note.__enter__()
        self._notes().append((module, note))

    def _leave(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        notes = self._notes()
        if any(one is module for one, _ in notes):  # Else it has begun before the hooks.
            last = None
            while last is not module:
                last, note = notes.pop()
                note.__exit__(None, None, None)

    def _notes(self) -> list[tuple[torch.nn.Module, Any]]:
        """Return the passes that are open in this thread."""
        notes: list[tuple[torch.nn.Module, Any]] = self._open.__dict__.setdefault("notes", [])
        return notes


class _Stack:
    """Where the thread that makes it stands a moment later: py-spy reads it from outside."""

    def __init__(self, rank: int) -> None:
        pid, thread = os.getpid(), threading.get_native_id()
        host, self._is_over = os.uname().nodename, False
        self._standing: Standing | None = None
        self._nothing = Standing(rank, pid, host, note=_TOO_SHORT)
        try:
            beat = Beat(rank, 1, pid, thread, born_ticks(pid), host=host)
        except (OSError, ValueError) as error:
            self._nothing = Standing(rank, pid, host, note=f"{error}")
            return
        reader = threading.Thread(target=self._read, args=(beat,), daemon=True, name="llmops-stack")
        reader.start()

    def _read(self, beat: Beat) -> None:
        (standing,) = stand([beat])
        if not self._is_over:  # Else it shows how the files are written.
            self._standing = standing

    def end(self) -> Standing:
        """Return where it stood before now."""
        self._is_over = True
        return self._standing or self._nothing


_TOO_SHORT = "the steps ended before py-spy had read the stack: profile more of them"


def operators_of(averages: Iterable[Any], *, on_gpu: bool) -> tuple[OperatorTime, ...]:
    """Return the operators with most time of their own, the calls of others inside not counted.

    Without what is only a name for calls, as of modules: its time on the GPU is that of operators.
    """
    rows = [
        OperatorTime(
            name=short_name(each.key),
            calls=each.count,
            self_cpu_s=each.self_cpu_time_total / MICROSECONDS,
            self_device_s=each.self_device_time_total / MICROSECONDS if on_gpu else None,
        )
        for each in averages
        if not each.is_user_annotation
    ]
    rows.sort(key=lambda row: row.self_device_s or row.self_cpu_s * (not on_gpu), reverse=True)
    return tuple(rows[:MOST_OPERATORS])


def _write_timeline(profiler: Any, path: Path) -> None:
    with scratch_folder("llmops-profile") as scratch:
        plain = scratch / "timeline.json"
        profiler.export_chrome_trace(str(plain))
        part = path.with_suffix(".part")
        with plain.open("rb") as source, gzip.open(part, "wb", compresslevel=3) as target:
            shutil.copyfileobj(source, target)
        part.replace(path)


def _write_memory(path: Path) -> None:
    """Write the allocator's snapshot, for pytorch.org/memory_viz."""
    with path.open("wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    torch.cuda.memory._record_memory_history(enabled=None)
