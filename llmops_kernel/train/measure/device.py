"""What a worker computes on, and how fast that could be."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from llmops_kernel.hardware import accelerators
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.train.measure import cpu_peak

PEAK_ENV_VAR = "LLMOPS_PEAK_TFLOPS"


@dataclass(frozen=True)
class Device:
    name: str
    peak_flops: float | None
    """Dense, of one worker, FLOP per second."""
    peak_source: str


def use_cpu_threads(local_world_size: int) -> int:
    """Divide the node's cores among its workers; Ray would give each a single thread."""
    threads = cores_each(local_world_size)
    torch.set_num_threads(threads)
    return threads


def device_name(*, use_gpu: bool) -> str:
    return torch.cuda.get_device_name() if use_gpu else cpu_name()


def cpu_name() -> str:
    """Return the processor's name, or its architecture where the system does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


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
    return of_accelerator(name, "tf32" if dtype == "float32" and uses_tf32() else dtype)


def of_accelerator(name: str, dtype: str) -> Device:
    """Return the peak of a datasheet; `dtype` may be `tf32`."""
    found = accelerators.find(name)
    known = accelerators.peak_flops(name, dtype)
    kind = "datasheet, TF32" if dtype == "tf32" else "datasheet"
    source = f"{kind}: {found.source}" if found and known else f"{name} with {dtype} is not listed"
    return Device(name, known, source)


def uses_tf32() -> bool:
    """Return whether PyTorch computes float32 products of GPUs in TF32, whoever has set that."""
    precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if precision is None:  # PyTorch before 2.9
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return str(precision) == "tf32"


def measured_cpu_peak(name: str, dtype: str, root: Path | None) -> tuple[float | None, str]:
    """Return the CPU's peak in FLOP per second, and how it is known.

    The kept value of earlier runs, else a measurement of about a second. None on a busy machine:
    its products are slower than the processor, and an MFU against them would be too high.
    """
    threads = torch.get_num_threads()
    kept, key = cpu_peak.PeakFile(root), cpu_peak.peak_key(name, dtype)
    peak = kept.get(key)
    if peak is None:
        measured = cpu_peak.measure(getattr(torch, dtype))
        if measured is None:
            return None, "not measured: other processes are using the CPU"
        peak = kept.add(key, measured)
    return peak, f"measured: best of {dtype} matrix products on this node, {threads} threads"


def raise_cpu_peak(dtype: str, root: Path | None) -> float | None:
    """Measure again after a run, until the peak was measured often enough; the highest is kept.

    Returns what is kept now, also by other runs since; None without any.
    """
    kept, key = cpu_peak.PeakFile(root), cpu_peak.peak_key(cpu_name(), dtype)
    if not kept.is_settled(key):
        measured = cpu_peak.measure(getattr(torch, dtype), budget_s=cpu_peak.RAISE_BUDGET_S)
        if measured is not None:
            return kept.add(key, measured)
    return kept.get(key)


def forget_cpu_peak(dtype: str, root: Path | None) -> None:
    """Remove the kept peak: a step was faster, so it cannot be the peak."""
    cpu_peak.PeakFile(root).remove(cpu_peak.peak_key(cpu_name(), dtype))
