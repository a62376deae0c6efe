"""Measures one node of a run: its GPUs by NVML, the host, and the run's processes there.

On the driver's own node a thread of the driver does it, on another one a Ray actor: never the
process that trains.
"""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import psutil

from llmops_kernel.driver.beats import (
    Beat,
    Member,
    beats_folder,
    between,
    is_alive,
    is_stopped,
    read_beats,
    remove_beats,
    without_driver,
)
from llmops_kernel.driver.stacks import Standing, stand
from llmops_kernel.errors import StoreError
from llmops_kernel.hardware.load import memory
from llmops_kernel.metrics.system import HostSample, WorkerSample

# --- GPUs ---


@dataclass(frozen=True)
class GpuReading:
    """A GPU as it is now; None: the device or its driver does not say."""

    uuid: str
    index: int
    name: str = ""
    utilization: float | None = None
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_clock_hz: float | None = None
    throttled: tuple[str, ...] | None = None
    energy_j: float | None = None
    """Counter since the driver was loaded."""
    pids: tuple[int, ...] = ()
    """Processes that compute on it; in a container with a pid namespace those of the host."""


class GpuReader(Protocol):
    """Reads the GPUs of this node."""

    def read(self) -> list[GpuReading]:
        """Return all GPUs; none where there is no driver."""


_THROTTLES: Final = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
"""Bits of nvmlClocksEventReasons; an idle GPU and clocks that were set are none (nvml.h)."""


class Nvml:
    """NVML by the package nvidia-ml-py. Without the package or a driver it has no GPUs."""

    def __init__(self, module: str = "pynvml") -> None:
        self._module = module
        self._nvml: Any = None
        self.reason = ""
        """Why there are no GPUs to read; empty while it is not known, and where there are some."""

    def read(self) -> list[GpuReading]:
        if self._nvml is None and not self.reason:
            self._open()
        if self.reason:
            return []
        nvml = self._nvml
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            self.reason = f"NVML: {error}"
            return []
        return [self._reading(index, handle) for index, handle in enumerate(handles)]

    def _open(self) -> None:
        try:
            self._nvml = importlib.import_module(self._module)
        except ImportError:
            self.reason = "the package nvidia-ml-py is not installed"
            return
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.reason = f"NVML: {error}"

    def _reading(self, index: int, handle: Any) -> GpuReading:
        nvml = self._nvml

        def ask(name: str, *arguments: Any) -> Any:
            try:
                return getattr(nvml, name)(handle, *arguments)
            except (nvml.NVMLError, AttributeError):
                return None

        used, busy = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
        power = _scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3)
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # Its name before version 12.535.
            bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return GpuReading(
            uuid=_text(ask("nvmlDeviceGetUUID")),
            index=index,
            name=_text(ask("nvmlDeviceGetName")),
            utilization=None if busy is None else busy.gpu / 100,
            memory_bytes=None if used is None else int(used.used),
            memory_total_bytes=None if used is None else int(used.total),
            temperature_c=_scaled(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU), 1.0),
            power_w=power,
            sm_clock_hz=_scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
            throttled=None if bits is None else throttle_words(bits),
            energy_j=_scaled(ask("nvmlDeviceGetTotalEnergyConsumption"), 1e-3),
            pids=tuple(each.pid for each in ask("nvmlDeviceGetComputeRunningProcesses") or ()),
        )


def throttle_words(bits: int) -> tuple[str, ...]:
    """Return why clocks are lowered, of NVML's bits."""
    return tuple(words for bit, words in _THROTTLES.items() if bits & bit)


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


class Energy:
    """Adds up what GPUs have used: by their own counters, else their power over time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, GpuReading]] = {}
        self.joules: float | None = None
        """None until a GPU has said something twice."""

    def add(self, now_s: float, readings: Iterable[GpuReading]) -> None:
        """Take readings of the GPUs that count; one that was not there is not guessed."""
        for now in readings:
            before_s, before = self._last.get(now.uuid, (now_s, None))
            self._last[now.uuid] = (now_s, now)
            if before is not None and (used := _used_j(before, now, now_s - before_s)) is not None:
                self.joules = (self.joules or 0.0) + used


def _used_j(before: GpuReading, now: GpuReading, seconds: float) -> float | None:
    """Return joules between two readings; the counter is exact, power the trapezoidal rule."""
    if before.energy_j is not None and now.energy_j is not None and now.energy_j >= before.energy_j:
        return now.energy_j - before.energy_j
    if before.power_w is None or now.power_w is None:
        return None
    return (before.power_w + now.power_w) / 2 * seconds


# --- The host ---


@dataclass(frozen=True)
class _Counters:
    """What only grows, at one moment."""

    at_s: float
    busy_s: float
    all_s: float
    disk: tuple[int, int] | None
    network: tuple[int, int] | None


def _counters(now_s: float) -> _Counters:
    times = psutil.cpu_times()
    idle_s = times.idle + getattr(times, "iowait", 0.0)
    guest_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # In user, nice.
    total_s = sum(times) - guest_s
    disk = psutil.disk_io_counters()  # None in a container without the file.
    nics = psutil.net_io_counters(pernic=True)
    outer = [counts for name, counts in nics.items() if name != "lo"]
    sent, received = (sum(getattr(n, name) for n in outer) for name in ("bytes_sent", "bytes_recv"))
    return _Counters(
        at_s=now_s,
        busy_s=total_s - idle_s,
        all_s=total_s,
        disk=None if disk is None else (disk.read_bytes, disk.write_bytes),
        network=(sent, received) if outer else None,
    )


def _rates(
    before: tuple[int, int] | None, now: tuple[int, int] | None, seconds: float
) -> tuple[float | None, float | None]:
    if before is None or now is None or seconds <= 0 or min(a - b for a, b in zip(now, before)) < 0:  # noqa: B905
        return None, None
    return (now[0] - before[0]) / seconds, (now[1] - before[1]) / seconds


class Host:
    """Measures this machine; rates are since the last call."""

    def __init__(self, *, node: str, folder: Path) -> None:
        self._node, self._folder = node, folder
        self._before: _Counters | None = None

    def sample(self, now_s: float) -> HostSample:
        """Return what is known now; `now_s` is of any clock that does not jump."""
        now, before = _counters(now_s), self._before
        self._before = now
        seconds = 0.0 if before is None else now.at_s - before.at_s
        read, written = _rates(before.disk if before else None, now.disk, seconds)
        sent, received = _rates(before.network if before else None, now.network, seconds)
        total_s = 0.0 if before is None else now.all_s - before.all_s
        busy_s = 0.0 if before is None else now.busy_s - before.busy_s
        free, total = min(memory(), key=lambda pair: pair[1], default=(None, None))
        disk = self._disk()
        return HostSample(
            host=os.uname().nodename,
            node=self._node,
            cpu=min(1.0, max(0.0, busy_s / total_s)) if total_s > 0 else None,
            cores=os.cpu_count(),
            load=os.getloadavg()[0],
            memory_used_bytes=None if total is None or free is None else total - free,
            memory_total_bytes=total,
            disk_used_bytes=disk and disk[1],
            disk_total_bytes=disk and disk[0],
            disk_read_bytes_per_second=read,
            disk_write_bytes_per_second=written,
            network_sent_bytes_per_second=sent,
            network_received_bytes_per_second=received,
        )

    def _disk(self) -> tuple[int, int, int] | None:
        """Return the disk that holds the run's folder, which may not exist yet."""
        for folder in (self._folder, *self._folder.parents):
            with suppress(OSError):
                return shutil.disk_usage(folder)
        return None


# --- A node ---


@dataclass(frozen=True)
class NodeSample:
    """One node at one moment."""

    host: HostSample
    workers: tuple[WorkerSample, ...] = ()
    energy_j: float | None = None
    """Of the workers' GPUs since the first sample."""


@dataclass
class _Known:
    """A process as it was at the sample before."""

    beat: Beat | None
    at_s: float
    cpu_s: float


class NodeSampler:
    """Samples the node of the process that makes it."""

    def __init__(
        self,
        run_id: str,
        attempt: int,
        *,
        node: str = "",
        folder: str = "",
        gpus: GpuReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set it up. `folder`: the run's on this node, whose disk is measured."""
        self._run_id, self._attempt, self._node = run_id, attempt, node
        self._gpus: GpuReader = Nvml() if gpus is None else gpus
        self._host = Host(node=node, folder=Path(folder or "/"))
        self._energy = Energy()
        self._known: dict[int, _Known] = {}
        self._clock = clock

    def beats(self) -> list[Beat]:
        """Return what the workers on this node said last."""
        try:
            folder = beats_folder(self._run_id, self._attempt)
        except StoreError:
            return []
        host, beats = os.uname().nodename, read_beats(folder)
        return [
            replace(beat, host=host, node=self._node, is_stopped=is_stopped(beat.pid))
            for beat in beats
            if is_alive(beat)
        ]

    def sample(self, members: Sequence[Member] = ()) -> NodeSample:
        """Measure this node, its workers and `members`."""
        now_s = self._clock()
        readings = self._gpus.read()
        beats: dict[int, Beat | None] = {beat.rank: beat for beat in self.beats()}
        pids = {rank: beat.pid for rank, beat in beats.items() if beat is not None}
        names: dict[int, tuple[str, ...]] = {}
        names |= {rank: (beat.gpu,) for rank, beat in beats.items() if beat is not None}
        for member in members:
            pids[member.rank], names[member.rank] = member.pid, member.gpus
        workers, used = [], {}
        for rank, pid in sorted(pids.items()):
            gpu = gpu_of(readings, pid, names[rank])
            if gpu is not None:
                used[gpu.uuid] = gpu
            if (worker := self._worker(now_s, rank, pid, beats.get(rank))) is not None:
                workers.append(worker.model_copy(update=_gpu_fields(gpu)))
        self._energy.add(now_s, used.values())
        return NodeSample(self._host.sample(now_s), tuple(workers), self._energy.joules)

    def _worker(self, now_s: float, rank: int, pid: int, beat: Beat | None) -> WorkerSample | None:
        """Return a process without its GPU; None once it is gone."""
        try:
            process = psutil.Process(pid)
            times, size = process.cpu_times(), int(process.memory_info().rss)
        except psutil.Error:
            return None
        before, cpu_s = self._known.get(pid), times.user + times.system
        self._known[pid] = _Known(beat, now_s, cpu_s)
        passed_s = 0.0 if before is None else now_s - before.at_s
        steps = None
        if before is not None and before.beat is not None and beat is not None:
            steps = between(before.beat, beat)
        return WorkerSample(
            rank=rank,
            host=os.uname().nodename,
            pid=pid,
            cpu=(cpu_s - before.cpu_s) / passed_s if before is not None and passed_s > 0 else None,
            memory_bytes=size,
            step=None if beat is None or not beat.step else beat.step,
            step_s=steps and steps.step_s,
            data_s=steps and steps.data_s,
            others_s=steps and steps.others_s,
            host_s=steps and steps.host_s,
        )

    def stacks(self) -> list[Standing]:
        """Return where each worker of this node stands; takes a second, and pauses nothing."""
        return stand(self.beats())

    def leftovers(self) -> list[str]:
        """Return a sentence for each process on this node's GPUs that nobody needs any more."""
        return leftovers(self._gpus.read())

    def close(self) -> None:
        """Delete the beats of this node."""
        remove_beats(self._run_id, self._attempt)


def gpu_of(readings: Sequence[GpuReading], pid: int, names: Sequence[str]) -> GpuReading | None:
    """Return the GPU of a process: by the name that it has for it, else where NVML sees its pid."""
    for reading in readings:
        if reading.uuid in names or str(reading.index) in names:
            return reading
    return next((reading for reading in readings if pid in reading.pids), None)


def _gpu_fields(gpu: GpuReading | None) -> Mapping[str, Any]:
    if gpu is None:
        return {}
    return {
        "gpu": gpu.name or gpu.uuid,
        "gpu_utilization": gpu.utilization,
        "gpu_memory_bytes": gpu.memory_bytes,
        "gpu_memory_total_bytes": gpu.memory_total_bytes,
        "temperature_c": gpu.temperature_c,
        "power_w": gpu.power_w,
        "sm_clock_hz": gpu.sm_clock_hz,
        "throttled": gpu.throttled,
    }


# --- GPUs that a process of an earlier run still holds ---


def leftovers(
    readings: Iterable[GpuReading], *, proc: Path = Path("/proc"), beats: Path | None = None
) -> list[str]:
    """Return a sentence for each process on a GPU that has ended, or whose run has.

    In a container with a pid namespace of its own nothing is said of pids that it does not have:
    NVML counts those of the machine. `beats`: the folder of all attempts' beats.
    """
    sees_all = _first_line(proc / "2" / "comm") == "kthreadd"
    ended = without_driver(beats or beats_folder("", 0).parent)
    runs = {
        beat.pid: folder.name.rpartition("-")[0]
        for folder, workers in ended.items()
        for beat in workers
    }
    sentences = []
    for reading in readings:
        gpu = f"GPU {reading.index} ({reading.name or reading.uuid})"
        for pid in reading.pids:
            if run := runs.get(pid):
                sentences.append(
                    f"{gpu} is still held by process {pid} of run {run}, whose driver has ended."
                )
            elif sees_all and not (proc / str(pid)).exists():
                sentences.append(f"{gpu} is still held by process {pid}, which has ended.")
    return sentences


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
