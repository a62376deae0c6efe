"""The Ray actor that holds an engine: named and detached, so that the next job finds it loaded."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmops_kernel.driver.compat import ray_logs
from llmops_kernel.driver.nodes import this_node, threads_set_by_user, use_cores
from llmops_kernel.errors import LLMOpsError, ModelError
from llmops_kernel.models.fetch import local_folder
from llmops_kernel.score.engine_loop import EngineLoop
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, Job, Prompt, load_engine
from llmops_kernel.store.engine_names import NOTES
from llmops_kernel.store.files import write_whole

_POLL_S = 1.0
_NEW_S = 10.0
BROKEN_EXIT = 70


class EngineActor:
    """Created empty; `load` loads the model. After a restart by Ray the next call loads again.

    It leaves the cluster when nobody has used it for `keep_s` seconds.
    """

    def __init__(self, spec: EngineSpec, *, keep_s: float, on_node: int = 1, run: str = "") -> None:
        """Start it. `on_node`: engines that share a node's cores. `run`: id of the first run."""
        self._spec, self._on_node = spec, on_node
        self._keep_s = keep_s
        self._run = run
        name, self._gpu_ids = _placed()
        self._node = this_node()
        self._note = EngineNote(ray_logs(), name)
        self._idle_from_s, self._idle_since_s = 0.0, 0.0
        self._loading = threading.Lock()
        self._callers = Callers()
        self._loop: EngineLoop | None = None
        self._touched_s = time.monotonic()
        self._load_s: float | None = None
        self._leaving = False
        threading.Thread(target=self._watch, daemon=True, name="llmops-keep").start()

    def load(
        self, *, keep_s: float | None = None, run: str = "", caller: str = ""
    ) -> dict[str, Any]:
        """Load the model unless it is loaded; return what is known of the engine.

        `run`: id of the run that will use it. `caller`: for `give_up`. Raises ModelError.
        """
        if keep_s is not None:
            self._keep_s = keep_s
        self._run = run or self._run
        self._ready(caller)
        return self.facts()

    def give_up(self, caller: str) -> bool:
        """Leave the cluster if it is not loaded yet and nobody but the caller waits for it."""
        if self._loop is not None or self._callers.anybody_waits(but=caller):
            return False
        self._leave()
        return True

    def generate(
        self,
        job: Job,
        prompts: Sequence[Prompt],
        targets: Sequence[str] = (),
        rows: Sequence[int] = (),
        *,
        caller: str = "",
    ) -> list[Answer]:
        """Return the answers in the order of the prompts; `rows`: their row numbers.

        After `drop(caller)` the answers that are not there yet are missing.
        """
        loop = self._ready(caller)
        if self._callers.is_dropped(caller):  # Meanwhile: the engine's loop did not exist yet.
            return []
        return loop.generate(_on_this_node(job), prompts, targets, rows, caller=caller)

    def drop(self, caller: str) -> None:
        """Cancel all calls of that caller, also those that arrive later."""
        self._callers.drop(caller)
        if self._loop is not None:
            self._loop.drop(caller)

    def stream(self, job: Job, prompt: Prompt, *, key: str = "") -> Iterator[Answer]:
        """Yield the growing answer; `cancel(key)` ends it."""
        yield from self._ready().stream(_on_this_node(job), prompt, key=key)

    def cancel(self, key: str) -> bool:
        """End the stream of that key; return False if there is none."""
        loop = self._loop
        return loop is not None and loop.cancel(key)

    def facts(self) -> dict[str, Any]:
        """Return its model, node and load; never waits for the engine."""
        loop = self._loop
        return {
            "model": self._spec.model,
            "type": self._spec.type,
            "pid": os.getpid(),
            "gpus": self._gpu_ids,
            "is_loaded": loop is not None,
            "load_s": self._load_s,
            **_precision(loop),
            "node": self._node,
            "keep_s": self._keep_s,
            **({} if loop is None else loop.facts()),
        }

    def leave(self, *, only_idle: bool = True, only_gpus: bool = False) -> bool:
        """Leave the cluster; return False if it stays.

        `only_idle`: it stays if it has work. `only_gpus`: it stays if it has no GPU.
        """
        if (only_gpus and not self._spec.num_gpus) or (only_idle and self._has_work()):
            return False
        self._leave()
        return True

    def _has_work(self) -> bool:
        if self._loop is not None:
            return self._loop.idle_s == 0
        # A call to load it may come right after the one that asks it to leave.
        return self._callers.anybody_waits() or time.monotonic() - self._touched_s < _NEW_S

    def _ready(self, caller: str = "") -> EngineLoop:
        self._touched_s = time.monotonic()
        with self._callers.waits(caller), self._loading:
            if self._loop is None:
                begin = time.monotonic()
                load = functools.partial(_loaded, self._spec, self._on_node)
                self._loop = EngineLoop(load, broken=_break)
                self._load_s = time.monotonic() - begin
            self._touched_s = time.monotonic()
            return self._loop

    def _write_note(self) -> None:
        """Write down what clients show; `idle_since_s` is None while it has work or loads."""
        loop = self._loop
        state = "loading" if loop is None else "idle" if loop.idle_s else "busy"
        # Used last by a call that may not have been work: such as `load` of a loaded engine.
        from_s = max(self._touched_s, 0.0 if loop is None else loop.used_s)
        if from_s != self._idle_from_s:
            self._idle_from_s = from_s
            self._idle_since_s = time.time() - (time.monotonic() - from_s)
        self._note.write(
            {
                "model": self._spec.model,
                "engine": self._spec.type,
                "state": state,
                "num_gpus": self._spec.num_gpus,
                "gpu_ids": self._gpu_ids,
                "pid": os.getpid(),
                "run": self._run,
                "keep_s": self._keep_s,
                "idle_since_s": self._idle_since_s if state == "idle" else None,
            }
        )

    def _watch(self) -> None:
        while not self._leaving:
            self._write_note()
            time.sleep(_POLL_S)
            if self._loading.locked():
                continue
            loop = self._loop
            idle_s = time.monotonic() - self._touched_s
            if loop is not None:
                idle_s = min(idle_s, loop.idle_s)
            if idle_s > self._callers.stay_s(self._keep_s):
                self._leave()

    def _leave(self) -> None:
        """End in a moment, for good: Ray does not start it again."""
        if not self._leaving:
            self._leaving = True
            threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        import ray

        self._note.remove()
        if self._loop is not None:
            self._loop.close()
        time.sleep(0.1)  # The answer to `leave` is sent first.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def _precision(loop: EngineLoop | None) -> dict[str, str]:
    """Return the number format and its reason; a user's own engine need not say them."""
    precision = getattr(loop.engine, "precision", None) if loop else None
    return {"dtype": precision.dtype, "precision": precision.summary} if precision else {}


@functools.lru_cache(maxsize=64)
def _on_this_node(job: Job) -> Job:
    """Copy an adapter that is behind a URL, once for each version. Raises ModelError."""
    folder = local_folder(job.adapter) if job.adapter else ""
    return job if folder == job.adapter else replace(job, adapter=folder)


def _placed() -> tuple[str, list[str]]:
    """Return the actor's name and the ids of its GPUs."""
    import ray

    name = str(ray.get_runtime_context().get_actor_name() or "")
    return name, [str(gpu_id) for gpu_id in ray.get_gpu_ids()]


def _loaded(spec: EngineSpec, on_node: int) -> Any:
    if not (spec.num_gpus or threads_set_by_user()):
        use_cores(on_node)
    try:
        return load_engine(replace(spec, model=local_folder(spec.model)))
    except LLMOpsError:
        raise
    except MemoryError as error:
        raise ModelError(
            f"{spec.model} does not fit into memory.",
            remedy="use a smaller model, a node with more memory, or engine.tensor_parallel",
        ) from error
    except Exception as error:
        raise ModelError(
            f"The engine {spec.type} cannot load {spec.model}: {type(error).__name__}: {error}",
            remedy="see the engine's log in the Ray Dashboard, or try another engine.type",
        ) from error


def _break(error: BaseException) -> None:
    """End the process when the engine is broken: Ray starts the actor again."""
    import traceback

    traceback.print_exception(error)
    os._exit(BROKEN_EXIT)


# --- The engine's file in Ray's log folder, for clients ---
# A client reaches the cluster through Ray's dashboard only, which shows files of that folder.


class EngineNote:
    """A file about the engine, written only when it changes. Without the folder it does nothing."""

    def __init__(self, logs: Path | None, name: str) -> None:
        """Write notes in `logs`, Ray's log folder of this node. `name`: of the actor."""
        self._path = logs / NOTES / f"{name}.json" if logs and name else None
        self._written: dict[str, Any] = {}

    def write(self, facts: dict[str, Any]) -> None:
        # Nobody can read it on a full disk; the engine works all the same.
        if self._path is not None and facts != self._written:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._path, json.dumps(facts).encode())
                self._written = dict(facts)

    def remove(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


# --- Callers of an engine ---


UNASKED_S = 60.0
"""Seconds that an engine stays that nobody asks to load: who started it is gone."""


class Callers:
    """Safe for threads: each call of the engine has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._dropped: set[str] = set()
        self._was_asked = False

    @contextmanager
    def waits(self, caller: str) -> Iterator[None]:
        """Count a call of this caller while it waits until the engine is loaded."""
        with self._lock:
            self._was_asked = True
            self._waiting.append(caller)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.remove(caller)

    def anybody_waits(self, *, but: str | None = None) -> bool:
        """Return whether a call waits, of another caller than this one."""
        with self._lock:
            return any(caller != but for caller in self._waiting)

    def drop(self, caller: str) -> None:
        """Forget the calls of that caller, also those that arrive later."""
        with self._lock:
            self._dropped.add(caller)

    def is_dropped(self, caller: str) -> bool:
        with self._lock:
            return caller in self._dropped

    def stay_s(self, keep_s: float) -> float:
        """Return how long the engine stays without use, where used ones stay `keep_s`."""
        return keep_s if self._was_asked else min(keep_s, UNASKED_S)
