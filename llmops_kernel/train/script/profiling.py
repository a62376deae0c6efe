"""Profiles steps of a script between its calls of `track.step`, as those of a training.

Rank 0 sees a request and publishes which steps: far enough ahead for the others to see it, for a
script has no moment at which all of its workers meet.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from llmops_kernel.config.models.sections import MOST_PROFILED
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.tell import pop_here
from llmops_kernel.metrics.events import Event, PhaseEvent, WarningEvent
from llmops_kernel.metrics.profile import PHASE, REQUEST_PHASE
from llmops_kernel.store.outputs import PROFILE, announced
from llmops_kernel.store.record import PROFILE_MESSAGE, RunSpec
from llmops_kernel.track.stopping import Board

if TYPE_CHECKING:
    from llmops_kernel.driver.stacks import Standing
    from llmops_kernel.train.measure.profiler import StepProfiler

_PLANNED: Final = "profile_steps"
"""Name on the board of `[first, last]`, which rank 0 has published."""
_STOOD: Final = "profile_stood"
_AHEAD_S: Final = 1.5
"""Three looks of another rank at the board."""
_OTHERS_S: Final = 5.0


class ScriptProfiles:
    """Of one process; `end_step` is called with each step that it has reported."""

    def __init__(
        self,
        spec: RunSpec,
        board: Board,
        *,
        rank: int,
        world_size: int,
        is_local: bool,
        folder: Path,
        visible: Callable[[], Path | None],
        emit: Callable[[Event], object],
    ) -> None:
        """`folder`: the run's on this node. `visible` returns the folder of its journal in the
        dashboard, if the client does not see `folder`.
        """
        self._board, self._rank, self._world_size = board, rank, world_size
        self._folder, self._visible, self._emit = folder, visible, emit
        self._profiler: StepProfiler | None = None
        self._is_asked_for = False
        self._planned: tuple[int, int] | None = (spec.config.get("profile") or {}).get("steps")
        self._published: Any = board.get(_PLANNED) if rank else None
        name = kv.key(spec.run_id, spec.attempt, PROFILE_MESSAGE)
        pop = partial(pop_here if is_local else kv.pop, name)
        self._requests = kv.Requests(pop if rank == 0 else self._new_plan)

    @property
    def is_on(self) -> bool:
        """Whether the step that has just ended was profiled."""
        return self._profiler is not None and self._profiler.is_on

    def end_step(self, step: int, *, time_s: float | None, is_last: bool) -> bool:
        """Take the end of a step: begin, or end, a profile. Return whether that took time."""
        if (request := self._requests.take()) is not None:
            self._plan(request, step, time_s)
        profiler = self._profiler
        if profiler is not None and profiler.is_due(step, is_last=is_last):
            self._end(profiler, step)
            return True
        planned = self._planned
        if planned is None or self.is_on or is_last or not planned[0] <= step + 1 <= planned[1]:
            return False
        self._planned = None
        self._begin(step + 1, planned[1])
        if self._is_asked_for:
            self._emit(PhaseEvent(name=REQUEST_PHASE, state="end"))
        return True

    def _plan(self, request: Any, step: int, time_s: float | None) -> None:
        if self._rank:
            self._planned = tuple(request)
            return
        count = min(int(request.get("steps", 0)), MOST_PROFILED)
        first, self._is_asked_for = step + 1, True
        if self._world_size > 1:
            first += 1 + math.ceil(_AHEAD_S / max(time_s or _AHEAD_S, 1e-3))
        self._planned = (first, first + count - 1)
        if self._world_size > 1:
            self._board.put(_PLANNED, self._planned)

    def _new_plan(self) -> Any:
        """Return what rank 0 has published, if it is not what it was."""
        before, self._published = self._published, self._board.get(_PLANNED)
        return self._published if self._published != before else None

    def _begin(self, first: int, last: int) -> None:
        torch, steps = sys.modules.get("torch"), (first, last)
        if torch is None:
            self._refuse(steps, "it has not imported torch", "py-spy shows where other code is")
            return
        # Imports torch and its profiler, which only a script that is profiled pays for.
        from llmops_kernel.train.measure.profiler import FOLDER, StepProfiler

        profiler = StepProfiler(
            self._folder / FOLDER,
            rank=self._rank,
            steps=steps,
            on_gpu=torch.cuda.is_available() and torch.cuda.is_initialized(),
            # What is compiled would be again for hooks of its modules.
            names_modules=not getattr(sys.modules.get("torch._dynamo.utils"), "counters", None),
        )
        try:
            profiler.begin(first)
        except RuntimeError as error:
            self._refuse(steps, f"{error}", "end the profiler of the script itself first")
            return
        self._profiler = profiler
        self._emit(PhaseEvent(name=PHASE, state="begin", detail=profiler.words))

    def _refuse(self, steps: tuple[int, int], why: str, remedy: str) -> None:
        message = f"Steps {steps[0]:,} to {steps[1]:,} of the script were not profiled: {why}."
        self._emit(WarningEvent(message=message, remedy=remedy))

    def _end(self, profiler: StepProfiler, step: int) -> None:
        from llmops_kernel.driver.checkpoint import size_bytes
        from llmops_kernel.driver.stacks import MOST_GROUPS, grouped

        self._profiler = None
        event, standing = profiler.end(step)
        if self._rank:
            self._board.put(f"{_STOOD}-{self._rank}", (event.last_step, asdict(standing)))
            return
        standings = [standing, *self._others(event.last_step)]
        self._emit(event.model_copy(update={"groups": grouped(standings)[:MOST_GROUPS]}))
        folder = Path(event.path)
        self._emit(
            announced(folder, what=PROFILE, size_bytes=size_bytes(folder), journal=self._visible())
        )
        self._emit(PhaseEvent(name=PHASE, state="end"))

    def _others(self, step: int) -> list[Standing]:
        """Return where other ranks stood; one that does not say it in time is left out."""
        from llmops_kernel.driver.stacks import Standing

        read, stood = TypeAdapter(Standing).validate_python, dict[int, Standing]()
        until_s = time.monotonic() + _OTHERS_S
        while len(stood) < self._world_size - 1 and time.monotonic() < until_s:
            for rank in set(range(1, self._world_size)) - stood.keys():
                said = self._board.get(f"{_STOOD}-{rank}")
                if said and said[0] == step:
                    stood[rank] = read(said[1])
            time.sleep(0.05)
        return [stood[rank] for rank in sorted(stood)]
