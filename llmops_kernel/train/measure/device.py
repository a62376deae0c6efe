"""The device of a worker, and its peak."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock

from llmops_kernel.hardware import accelerators
from llmops_kernel.hardware.precision import cpu_name
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.store.paths import cache

PEAK_ENV_VAR = accelerators.PEAK_ENV_VAR


@dataclass(frozen=True)
class Device:
    name: str
    peak_flops: float | None
    """Dense, of one worker, FLOP per second."""
    peak_source: str


_ONEDNN_SIZES = 64
"""The layers of a decoder have some 25 products of different sizes, forward and backward."""


def bound_onednn_caches() -> None:
    """Limit what oneDNN keeps of products of other sizes; must be called before its first product.

    PyTorch computes bfloat16 with it. It keeps the code and the buffers of the last 1,024 sizes,
    and the lengths of batches differ: a worker of a 4-layer model took 1.3 GiB more in 700 steps.
    The variables are read once, at the first product; a user's stay.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(_ONEDNN_SIZES))


def use_cpu_threads(local_world_size: int) -> int:
    """Divide the node's cores among its workers; Ray would give each a single thread."""
    bound_onednn_caches()
    threads = cores_each(local_world_size)
    torch.set_num_threads(threads)
    return threads


def device_name(*, use_gpu: bool) -> str:
    return torch.cuda.get_device_name() if use_gpu else cpu_name()


def describe(*, use_gpu: bool, dtype: str, cache_root: Path | None = None) -> Device:
    """Return name and peak: from the datasheet of a known accelerator, measured on a CPU.

    The peak of float32 products is that of TF32 where PyTorch computes them so by now.
    """
    name = device_name(use_gpu=use_gpu)
    stated = accelerators.peak_flops_override(os.environ.get(PEAK_ENV_VAR))
    if stated is not None:
        return Device(name, stated, f"stated in {PEAK_ENV_VAR}")
    if not use_gpu:
        peak, source = measured_cpu_peak(name, dtype, cache_root)
        return Device(name, peak, source)
    return datasheet_peak(name, "tf32" if dtype == "float32" and uses_tf32() else dtype)


def datasheet_peak(name: str, dtype: str) -> Device:
    """Return the peak of a datasheet; `dtype` may be `tf32`."""
    accelerator = accelerators.find(name)
    peak = accelerators.peak_flops(name, dtype)
    kind = "datasheet, TF32" if dtype == "tf32" else "datasheet"
    source = (
        f"{kind}: {accelerator.source}"
        if accelerator and peak
        else f"{name} with {dtype} is not listed"
    )
    return Device(name, peak, source)


def uses_tf32() -> bool:
    """Return whether PyTorch computes float32 products of GPUs in TF32, whoever has set that."""
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if precision is None:  # PyTorch before 2.9
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return str(precision) == "tf32"


def measured_ceiling(dtype: str) -> float | None:
    """Return FLOP per second of this GPU in large matrix products of random numbers, some ms long.

    None where its memory is too full for three matrices. The memory is given back.
    """
    flops = 2.0 * _CEILING_SIZE**3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    try:
        one, other = (
            torch.randn(_CEILING_SIZE, _CEILING_SIZE, device="cuda", dtype=getattr(torch, dtype))
            for _ in range(2)
        )
        for _ in range(_CEILING_REPEATS):
            begin.record()
            one @ other
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
    except torch.cuda.OutOfMemoryError:
        return None
    return flops / min(times)


_CEILING_SIZE = 4096
_CEILING_REPEATS = 10


def measured_cpu_peak(name: str, dtype: str, root: Path | None) -> tuple[float | None, str]:
    """Return the CPU's peak in FLOP per second, and how it is known.

    The kept value of earlier runs, else a measurement of about a second. None on a busy machine:
    its products are slower than the processor, and an MFU against them would be too high.
    """
    threads = torch.get_num_threads()
    peaks, key = PeakFile(root), peak_key(name, dtype)
    peak = peaks.get(key)
    if peak is None:
        new_peak = measure(getattr(torch, dtype))
        if new_peak is None:
            return None, "not measured: other processes are using the CPU"
        peak = peaks.add(key, new_peak)
    return peak, f"measured: best of {dtype} matrix products on this node, {threads} threads"


def raise_cpu_peak(dtype: str, root: Path | None) -> float | None:
    """Measure again after a run, until the peak was measured often enough; the highest is kept.

    Returns what is kept now, also by other runs since; None without any.
    """
    peaks, key = PeakFile(root), peak_key(cpu_name(), dtype)
    if not peaks.is_settled(key):
        new_peak = measure(getattr(torch, dtype), budget_s=RAISE_BUDGET_S)
        if new_peak is not None:
            return peaks.add(key, new_peak)
    return peaks.get(key)


def forget_cpu_peak(dtype: str, root: Path | None) -> None:
    """Remove the kept peak: a step was faster, so it cannot be the peak."""
    PeakFile(root).remove(peak_key(cpu_name(), dtype))


# --- Peak of the CPU ---
# The peak of a CPU: the best rate of large matrix products, measured while the machine is idle.
#
# A product that other processes interrupt says little about the processor. The processor time of
# products per wall time shows whether that happened: on an idle machine it is one second per
# second and thread. Only such products count, and only their result is kept.
#
# The kernel adds up the processor time of other threads at its ticks only, 1 to 10 ms apart. So
# it is read around products of many ticks together: around a short one it shows what earlier ones
# took.


FILE = "cpu-peaks.json"
"""`peaks.json` of earlier versions may hold values of a busy machine, so it is not read."""
SIZES = (256, 512, 1024, 2048)
BUDGET_S = 1.0
RAISE_BUDGET_S = 0.4
MEASUREMENTS = 3
"""An idle measurement repeated so often is believed to be the peak."""
SAMPLE_S = 0.08
"""Least wall time of the products whose processor time is read together."""
_SAMPLES = 2
_UNDISTURBED = 0.9
"""Least share of the wall time that each thread of undisturbed products computes."""

Clock = Callable[[], float]
Product = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """Equal matrix products one after another."""

    flops: float
    """FLOPs of one product; a multiply-add counts as two, as in datasheets."""
    quickest_s: float
    """Wall time of the quickest product."""
    wall_s: float
    """Seconds of all products."""
    cpu_s: float
    """Processor time of all threads of this process in that time."""

    def undisturbed(self, threads: int) -> bool:
        return self.cpu_s >= _UNDISTURBED * threads * self.wall_s


def best_rate(samples: list[Sample], *, threads: int) -> float | None:
    """Return FLOP per second of the best product of undisturbed samples; None without one."""
    rates = [
        sample.flops / sample.quickest_s
        for sample in samples
        if sample.quickest_s > 0 and sample.undisturbed(threads)
    ]
    return max(rates, default=None)


def take_samples(
    make_product: Callable[[int], Product],
    *,
    budget_s: float = BUDGET_S,
    wall: Clock = time.perf_counter,
    cpu: Clock = time.process_time,
) -> list[Sample]:
    """Time square products of growing size until the budget is used.

    The first product of each size starts threads and touches memory for the first time; it is
    not counted. A size that would not fit into the budget any more is left out, because a CPU
    without bfloat16 instructions takes minutes for the largest one; the last size uses the rest.
    """
    samples: list[Sample] = []
    deadline = wall() + budget_s
    for size in SIZES:
        product = make_product(size)
        begin = wall()
        product()
        quickest_s, number, has_room = wall() - begin, 0, True
        while number < _SAMPLES or not has_room:
            if number and wall() > deadline:
                return samples
            samples.append(_sample(product, 2.0 * size**3, wall=wall, cpu=cpu))
            quickest_s, number = min(quickest_s, samples[-1].quickest_s), number + 1
            # A product of the next size costs eight times as much.
            has_room = wall() + max(16 * quickest_s, SAMPLE_S) <= deadline
    return samples


def _sample(product: Product, flops: float, *, wall: Clock, cpu: Clock) -> Sample:
    """Repeat a product for as long as a sample lasts."""
    begin, begin_cpu = wall(), cpu()
    last, quickest_s = begin, math.inf
    while last - begin < SAMPLE_S:
        product()
        now = wall()
        last, quickest_s = now, min(quickest_s, now - last)
    return Sample(flops, quickest_s, last - begin, cpu() - begin_cpu)


def measure(dtype: torch.dtype, *, budget_s: float = BUDGET_S) -> float | None:
    """Return FLOP per second of this process's threads; None on a busy machine."""

    def make_product(size: int) -> Product:
        # A generator of its own: whether a run measures must not change what its dropout draws.
        drawn = torch.randn(2, size, size, generator=torch.Generator())
        left, right = drawn.to(dtype)
        return lambda: left @ right

    samples = take_samples(make_product, budget_s=budget_s)
    return best_rate(samples, threads=torch.get_num_threads())


class PeakFile:
    """The measured peaks of this machine, by processor, dtype, number of threads and torch."""

    def __init__(self, root: Path | None = None) -> None:
        self._file = (root or cache()) / FILE

    def get(self, key: str) -> float | None:
        entry = self._read().get(key)
        return entry[0] if entry else None

    def is_settled(self, key: str) -> bool:
        """Return True when the peak was measured often enough."""
        entry = self._read().get(key)
        return entry is not None and entry[1] >= MEASUREMENTS

    def add(self, key: str, peak: float) -> float:
        """Keep an idle measurement where it is higher than what is kept; return the highest."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self._file) + ".lock"):
            peaks = self._read()
            highest, times = peaks.get(key, (0.0, 0))
            peaks[key] = (max(highest, peak), times + 1)
            self._write(peaks)
        return peaks[key][0]

    def remove(self, key: str) -> None:
        """Forget a peak that a run has exceeded."""
        with FileLock(str(self._file) + ".lock"):
            peaks = self._read()
            if peaks.pop(key, None) is not None:
                self._write(peaks)

    def _write(self, peaks: dict[str, tuple[float, int]]) -> None:
        scratch = self._file.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(peaks, indent=1))
        scratch.replace(self._file)

    def _read(self) -> dict[str, tuple[float, int]]:
        try:
            content = json.loads(self._file.read_text())
            return {str(key): (float(peak), int(times)) for key, (peak, times) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def peak_key(name: str, dtype: str) -> str:
    """Return the name of a measurement: what the peak depends on."""
    threads = torch.get_num_threads()
    return f"{platform.node()}|{name}|{dtype}|{threads} threads|{torch.__version__}"
