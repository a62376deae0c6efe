"""Where the workers of a node stand: py-spy reads their stacks and pauses none of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from llmops_kernel.driver.beats import Beat, is_alive
from llmops_kernel.metrics.system import StackGroup

_DUMP_S: Final = 8.0
_THREADS: Final = 8
_MOST_FRAMES: Final = 60
MOST_GROUPS: Final = 16
"""Of a profile in the journal: hundreds of ranks may stand at as many places."""
_IN_WORKSPACE = re.compile(r"/working_dir_files/_ray_pkg_[0-9a-f]+/(.+)$")
_OF_PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python", "llmops_kernel/", "<")
_COLLECTIVE = re.compile(r"torch/distributed/(distributed_c10d|_functional_collectives)\.py$")
_ABOVE_COLLECTIVE = re.compile(
    r"/torch/distributed/|train/measure/step_parts\.py$|/contextlib\.py$"
)
_IS_WAITED_FOR = frozenset(
    {"barrier", "wait", "all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter"}
)
_DATA = re.compile(r"torch/utils/data/|llmops_kernel/train/data/|/datasets/")
_COMPILES = re.compile(r"torch/(_dynamo|_inductor|utils/cpp_extension)")
_LONG = re.compile(r"^_*(eval|valid|generate|predict|save)", re.IGNORECASE)
NO_PTRACE: Final = (
    "py-spy may not read this process. Allow it: `sysctl kernel.yama.ptrace_scope=0` on the node,"
    " or in Kubernetes the capability SYS_PTRACE in the pod's securityContext"
)

State = Literal["stopped", "collective", "data", "code", "gone", "unknown"]


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """`train.py:12 (main)`: the path in the user's workspace, else in a package."""
        return f"{shown_path(self.file)}:{self.line} ({self.function})"


@dataclass(frozen=True)
class Standing:
    """A worker that was looked at."""

    rank: int
    pid: int
    host: str
    is_there: bool = True
    is_stopped: bool = False
    """By a signal; or by a debugger."""
    is_idle: bool = False
    """The thread waits in the system, and computes nothing."""
    frames: tuple[Frame, ...] = ()
    """Of the thread that trains, innermost call first."""
    note: str = ""
    """Why there are none."""


def stand(beats: Sequence[Beat]) -> list[Standing]:
    """Return where the processes of the beats stand, which are of this node."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_stand, beats))


def _stand(beat: Beat) -> Standing:
    if not is_alive(beat):
        return Standing(beat.rank, beat.pid, beat.host, is_there=False)
    status = ""
    with suppress(psutil.Error):
        status = psutil.Process(beat.pid).status()
    threads, note = dump(beat.pid)
    chosen = next((one for one in threads if one.get("os_thread_id") == beat.thread), None)
    if chosen is None and not note:
        note = "the thread that trains has ended"
    return Standing(
        rank=beat.rank,
        pid=beat.pid,
        host=beat.host,
        is_stopped=status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP),
        is_idle=chosen is not None and not chosen.get("active", True),
        frames=() if chosen is None else _frames(chosen),
        note=note,
    )


def _frames(thread: dict[str, Any]) -> tuple[Frame, ...]:
    return tuple(
        Frame(each["name"], each.get("filename") or "", int(each.get("line") or 0))
        for each in thread.get("frames", ())[:_MOST_FRAMES]
    )


def dump(pid: int) -> tuple[list[dict[str, Any]], str]:
    """Return the threads of a Python process as py-spy has them, and why there are none.

    `--nonblocking` reads the memory of a process that goes on: a stack may be torn, and is read
    again then.
    """
    program = _program()
    if program is None:
        return [], "py-spy is not installed on this node: `pip install py-spy`"
    note = ""
    for _ in range(3):
        words = [program, "dump", "--pid", str(pid), "--nonblocking", "--json"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_DUMP_S)
            threads: list[dict[str, Any]] = json.loads(done.stdout)
            return threads, ""
        except subprocess.TimeoutExpired:
            return [], f"py-spy did not answer within {_DUMP_S:g} s"
        except OSError as error:
            return [], f"py-spy cannot be run: {error}"
        except ValueError:
            note = _reason(done.stderr)
            if note == NO_PTRACE:
                break
    return [], note


def _program() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _reason(text: str) -> str:
    if "ermission" in text or "not permitted" in text:
        return NO_PTRACE
    lines = [line for line in text.strip().splitlines() if line]
    return f"py-spy: {lines[-1]}" if lines else "py-spy gave no stack"


def shown_path(file: str) -> str:
    """Return a file's path in the user's workspace, or behind the folder of packages."""
    if match := _IN_WORKSPACE.search(file):
        return match[1]
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.rpartition(folder)[2]
    _, is_ours, path = file.rpartition("/llmops_kernel/")
    return f"llmops_kernel/{path}" if is_ours else file


# --- Who waits for whom ---


def _is_users(frame: Frame) -> bool:
    if _IN_WORKSPACE.search(frame.file):
        return not shown_path(frame.file).startswith("llmops_kernel/")
    return bool(frame.file) and not any(part in frame.file for part in _OF_PACKAGES)


def collective_of(frames: Sequence[Frame]) -> str:
    """Return the collective that a stack is in, such as `all_reduce`; empty for none."""
    inside = [frame.function for frame in frames[:8] if _COLLECTIVE.search(frame.file)]
    named = [name for name in inside if name not in ("wrapper", "inner")]
    if named:
        return named[-1].removeprefix("_")
    if frames and frames[0].function in _IS_WAITED_FOR and "distributed" in frames[0].file:
        return frames[0].function
    return ""


def state_of(standing: Standing) -> State:
    """Return what a worker does, as `StackGroup.state`."""
    if not standing.is_there:
        return "gone"
    if standing.is_stopped:
        return "stopped"
    frames = standing.frames
    if not frames:
        return "unknown"
    if collective_of(frames) or _waits_in_backward(standing):
        return "collective"
    inner = next((frame for frame in frames if not frame.file.startswith("<")), frames[0])
    is_data = any(_DATA.search(frame.file) for frame in frames)
    return "data" if is_data and not _computes(inner) else "code"


def _computes(frame: Frame) -> bool:
    return "/torch/nn/" in frame.file or "/transformers/models/" in frame.file


def _waits_in_backward(standing: Standing) -> bool:
    """Return whether it is idle in a backward pass: there the gradients of the others are awaited.

    The exchange of DDP is C++ below this call.
    """
    if not standing.is_idle or not standing.frames:
        return False
    return standing.frames[0].function == "_engine_run_backward"


def place_of(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost line of the user's own, else the innermost of all.

    Of a collective that nobody's own line has called, the line of ours that calls it.
    """
    callers = [one for one in frames if not _ABOVE_COLLECTIVE.search(one.file)]
    default = callers[0] if callers and collective_of(frames) else frames[0] if frames else None
    return next(filter(_is_users, frames), default)


def is_known_to_take_long(standings: Iterable[Standing], *, guess: bool) -> bool:
    """Return whether a worker that is not stopped compiles.

    With `guess` also whether it is in a function that is named after an evaluation or a save.
    """
    frames = [frame for one in standings if not one.is_stopped for frame in one.frames]
    return any(_COMPILES.search(frame.file) for frame in frames) or (
        guess and any(_LONG.match(frame.function) for frame in frames)
    )


def grouped(standings: Iterable[Standing]) -> tuple[StackGroup, ...]:
    """Return the workers by where they stand: those that others wait for come first."""
    groups: dict[tuple[Any, ...], list[Standing]] = {}
    for one in standings:
        place = place_of(one.frames)
        state = state_of(one)
        key = (state, collective_of(one.frames), place and place.place, one.note)
        groups.setdefault(key, []).append(one)
    order = ("stopped", "gone", "code", "data", "unknown", "collective")
    return tuple(
        StackGroup(
            ranks=tuple(one.rank for one in members),
            hosts=tuple(one.host for one in members),
            pids=tuple(one.pid for one in members),
            state=state,
            place=_place_words(state, name, place or ""),
            note=note,
            frames=tuple(frame.place for frame in members[0].frames),
        )
        for (state, name, place, note), members in sorted(
            groups.items(), key=lambda item: (order.index(item[0][0]), item[1][0].rank)
        )
    )


def _place_words(state: State, collective: str, place: str) -> str:
    if state == "collective":
        name = collective or "the backward pass"
        return f"{name} at {place}" if place else name
    return place
