"""What a worker computes on, and how fast that could be."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from llmops_kernel.hardware import accelerators
from llmops_kernel.runs.paths import cache

PEAK_ENV_VAR = "LLMOPS_PEAK_TFLOPS"
_SIZES = (256, 512, 1024, 2048)
_BUDGET_S = 1.0


@dataclass(frozen=True)
class Device:
    name: str
    peak_flops: float | None
    """Dense, of one worker, FLOP per second."""
    peak_source: str


def use_cpu_threads(local_world_size: int) -> int:
    """Share the node's cores out among its workers; Ray would leave one thread to each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = max(1, (cores or 1) // max(1, local_world_size))
    torch.set_num_threads(threads)
    return threads


def device_name(*, use_gpu: bool) -> str:
    return torch.cuda.get_device_name() if use_gpu else cpu_name()


def cpu_name() -> str:
    """The processor's own name; the architecture where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe(*, use_gpu: bool, dtype: str, cache_root: Path | None = None) -> Device:
    """Name and peak: the datasheet's on a known accelerator, measured on a CPU, else None."""
    name = device_name(use_gpu=use_gpu)
    stated = accelerators.peak_flops_override(os.environ.get(PEAK_ENV_VAR))
    if stated is not None:
        return Device(name, stated, f"stated in {PEAK_ENV_VAR}")
    if not use_gpu:
        peak, threads = measured_cpu_peak(name, dtype, cache_root)
        what = f"measured: best of {dtype} matrix products on this node, {threads} threads"
        return Device(name, peak, what)
    found = accelerators.find(name)
    known = accelerators.peak_flops(name, dtype)
    source = f"datasheet: {found.source}" if found and known else "peak unknown"
    return Device(name, known, source)


def measured_cpu_peak(name: str, dtype: str, root: Path | None) -> tuple[float, int]:
    """FLOP per second of the best of some matrix products; measured once per node and threads."""
    threads = torch.get_num_threads()
    file = (root or cache()) / "peaks.json"
    key = f"{platform.node()}|{name}|{dtype}|{threads}|{torch.__version__}"
    known = _read(file)
    if key not in known:
        known = {**_read(file), key: _best_product(getattr(torch, dtype))}
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(known, indent=1))
        scratch.replace(file)
    return known[key], threads


def _read(file: Path) -> dict[str, float]:
    try:
        content: dict[str, float] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content


def _best_product(dtype: torch.dtype) -> float:
    """FLOP per second, a multiply-add counted as two as in hardware/accelerators.py.

    Sizes grow until the time is up: a CPU without bf16 instructions would take minutes for the
    largest one.
    """
    best, deadline = 0.0, time.perf_counter() + _BUDGET_S
    for size in _SIZES:
        left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
        for _ in range(8):
            begin = time.perf_counter()
            left @ right
            end = time.perf_counter()
            best = max(best, 2 * size**3 / (end - begin))
            # The next size costs eight times as much.
            if end + 8 * (end - begin) > deadline and size != _SIZES[-1]:
                return best
            if end > deadline:
                return best
    return best
