"""What each worker process says of itself on its node: its step, the part of it, what it waited.

A file of a few bytes a rank, which the worker has mapped: to say something is a store to memory. So
a worker that hangs, or holds Python's lock, is seen from outside, and a step pays microseconds.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.errors import StoreError
from llmops_kernel.store.files import own_temp_folder
from llmops_kernel.store.record import RunSpec

PARTS = ("between", "data", "passes", "optimizer", "offload", "communication")
"""Parts of a step, as `train.measure.step_parts` names them."""

FIRST_STEP = "first-step"
"""Name in Ray's key-value store that rank 0 sets after its first step, for a driver on a node
without a worker."""
_FOLDER = "llmops-beats"
_DRIVER = "driver"
_MAGIC = b"beat1\0\0\0"
_SIZE = 256
_HEAD = struct.Struct("<8siiiiQ")
"""Magic, rank, world size, pid, the thread's id in the system, start of the process."""
_GPU = struct.Struct("<48s")
_STEP = struct.Struct("<Qqq4d")
"""A number that is odd while it is written, step, counted steps, and sums of seconds: of the steps
and of those in them for data, other ranks and an optimizer in host memory; NaN: not measured."""
_PHASE = struct.Struct("<24s")
_GPU_AT = 32
_STEP_AT = 96
_PHASE_AT = 176
_PART_AT = 200
_TRIES = 3


@dataclass(frozen=True)
class Beat:
    """What a worker process said last."""

    rank: int
    world_size: int
    pid: int
    thread: int
    """The system's id of the thread that trains."""
    born_ticks: int
    """When the process was started, in ticks since boot: a pid is used again."""
    gpu: str = ""
    """Its GPU as NVML names it: `GPU-8f2a...` or a number; empty without one."""
    step: int = 0
    """The last step that has ended; 0: none."""
    counted: int = 0
    """Steps of this process whose time was measured."""
    total_s: float = 0.0
    """Seconds of the counted steps."""
    data_s: float = 0.0
    others_s: float = 0.0
    host_s: float = 0.0
    phase: str = ""
    """A known phase that it is in, such as `evaluate`; empty between phases."""
    part: str = "between"
    host: str = ""
    """Host and node, which the sampler of its node adds."""
    node: str = ""
    is_stopped: bool = False
    """Whether a signal has stopped the process, which the sampler adds too."""


@dataclass(frozen=True)
class Member:
    """A process of the run that writes no beat, such as an engine's."""

    rank: int
    pid: int
    gpus: tuple[str, ...] = ()
    """Its GPUs as Ray names them: numbers or UUIDs."""


def beats_folder(run_id: str, attempt: int) -> Path:
    """Return the folder of an attempt's beats on this node. Raises StoreError."""
    return own_temp_folder(_FOLDER) / f"{run_id}-{attempt}"


class BeatWriter:
    """Writes the beat of this process, from the thread that makes it."""

    def __init__(self, folder: Path, *, rank: int, world_size: int) -> None:
        """Create the file. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{rank}.beat"
        scratch = path.with_suffix(f".{os.getpid()}")
        # Written whole: a store to a page for which a full disk has no place would end the process.
        scratch.write_bytes(bytes(_SIZE))
        with scratch.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        thread = threading.get_native_id()
        own = (rank, world_size, os.getpid(), thread, born_ticks(os.getpid()))
        _HEAD.pack_into(self._map, 0, _MAGIC, *own)
        scratch.rename(path)
        self._count = self._counted = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]

    def enter(self, part: int) -> None:
        """Say in which of `PARTS` it is."""
        self._map[_PART_AT] = part

    def phase(self, name: str) -> None:
        """Say that a known phase has begun, or with an empty name that none is under way."""
        _PHASE.pack_into(self._map, _PHASE_AT, name.encode()[:24])

    def step(
        self,
        step: int,
        *,
        time_s: float | None,
        data_s: float | None = None,
        others_s: float | None = None,
        host_s: float | None = None,
    ) -> None:
        """Say that a step has ended; None: not measured."""
        self.phase("")  # The first step has none that ends on each rank.
        if not self._count:  # By now it has its GPU in use.
            _GPU.pack_into(self._map, _GPU_AT, gpu_here().encode()[:48])
        if time_s is not None:
            self._counted += 1
            for place, value in enumerate((time_s, data_s, others_s, host_s)):
                self._sums[place] += math.nan if value is None else value
        self._count += 2
        values = (step, self._counted, *self._sums)
        _STEP.pack_into(self._map, _STEP_AT, self._count - 1, *values)
        _STEP.pack_into(self._map, _STEP_AT, self._count, *values)


def open_beat(spec: RunSpec, *, rank: int, world_size: int) -> BeatWriter | None:
    """Return the writer of this process; None where the node has no place for it."""
    with suppress(OSError, StoreError, ValueError):
        folder = beats_folder(spec.run_id, spec.attempt)
        return BeatWriter(folder, rank=rank, world_size=world_size)
    return None


def gpu_here() -> str:
    """Return the GPU that this process computes on, by the name that NVML has; empty without one.

    Asks PyTorch only where it has a GPU in use already.
    """
    torch = sys.modules.get("torch")
    with suppress(Exception):  # A script may have half imported it.
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            return f"GPU-{uuid}"
    return ""


def born_ticks(pid: int) -> int:
    """Return when a process was started, in ticks since boot. Raises OSError without one."""
    return int(_stat(pid)[19])


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process, as SIGSTOP does."""
    with suppress(OSError):
        return _stat(pid)[0] == "T"
    return False


def _stat(pid: int) -> list[str]:
    # proc_pid_stat(5): state is field 3, starttime 22; the name (2) may hold spaces.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def read_beats(folder: Path) -> list[Beat]:
    """Return the beats in a folder, by rank; none where there is no folder."""
    with suppress(OSError):
        read = (_read(path) for path in folder.glob("*.beat"))
        return sorted((beat for beat in read if beat), key=lambda beat: beat.rank)
    return []


def _read(path: Path) -> Beat | None:
    for _ in range(_TRIES):
        with suppress(OSError):
            data = path.read_bytes()
            if len(data) == _SIZE and (beat := _parse(data)):
                return beat
        time.sleep(0.001)
    return None


def _parse(data: bytes) -> Beat | None:
    """Return the beat; None while its step is being written."""
    magic, rank, world_size, pid, thread, born = _HEAD.unpack_from(data)
    (gpu,) = _GPU.unpack_from(data, _GPU_AT)
    number, step, counted, *sums = _STEP.unpack_from(data, _STEP_AT)
    if magic != _MAGIC or number % 2:
        return None
    (phase,) = _PHASE.unpack_from(data, _PHASE_AT)
    total_s, data_s, others_s, host_s = sums
    return Beat(
        rank=rank,
        world_size=world_size,
        pid=pid,
        thread=thread,
        born_ticks=born,
        gpu=_text(gpu),
        step=step,
        counted=counted,
        total_s=total_s,
        data_s=data_s,
        others_s=others_s,
        host_s=host_s,
        phase=_text(phase),
        part=PARTS[min(data[_PART_AT], len(PARTS) - 1)],
    )


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")


def is_alive(beat: Beat) -> bool:
    """Return whether the process that wrote it still exists."""
    return _lives(beat.pid, beat.born_ticks)


def _lives(pid: int, ticks: int) -> bool:
    try:
        return born_ticks(pid) == ticks
    except (OSError, ValueError, IndexError):
        return False


def claim_beats(run_id: str, attempt: int) -> None:
    """Say in the folder of an attempt's beats that this process drives it."""
    with suppress(OSError, StoreError):
        folder = beats_folder(run_id, attempt)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _DRIVER).write_text(f"{os.getpid()} {born_ticks(os.getpid())}")


def without_driver(root: Path) -> dict[Path, list[Beat]]:
    """Return the folders whose driver on this node has ended, and the workers that live on."""
    ended: dict[Path, list[Beat]] = {}
    for claim in root.glob(f"*/{_DRIVER}"):
        with suppress(OSError, ValueError, IndexError):
            pid, ticks = map(int, claim.read_text().split())
            if not _lives(pid, ticks):
                ended[claim.parent] = [each for each in read_beats(claim.parent) if is_alive(each)]
    return ended


def remove_beats(run_id: str, attempt: int) -> None:
    """Delete an attempt's beats on this node, and those that a killed driver has left."""
    with suppress(OSError, StoreError):
        folder = beats_folder(run_id, attempt)
        left = [other for other, workers in without_driver(folder.parent).items() if not workers]
        for each in (folder, *left):
            shutil.rmtree(each, ignore_errors=True)
        folder.parent.rmdir()  # Unless another run has some.


# --- What two beats of a rank say of the steps between them ---


@dataclass(frozen=True)
class Between:
    """The steps of a rank between two of its beats; seconds are means of a step."""

    steps: int
    step_s: float
    data_s: float | None
    others_s: float | None
    host_s: float | None

    @property
    def busy_s(self) -> float | None:
        """Return the seconds in which it did not wait for other ranks; None: not measured."""
        return None if self.others_s is None else max(0.0, self.step_s - self.others_s)


def between(before: Beat, after: Beat) -> Between | None:
    """Return the steps between two beats of one process; None without any."""
    steps = after.counted - before.counted
    if steps <= 0 or (before.pid, before.born_ticks) != (after.pid, after.born_ticks):
        return None

    def mean(name: str) -> float | None:
        value = (getattr(after, name) - getattr(before, name)) / steps
        return value if math.isfinite(value) else None

    step_s = mean("total_s")
    if step_s is None:
        return None
    return Between(steps, step_s, mean("data_s"), mean("others_s"), mean("host_s"))
