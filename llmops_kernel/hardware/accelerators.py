"""Accelerators and host types, as cited data; unknown is None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llmops_kernel.errors import ConfigError

TFLOPS: Final = 1e12
PEAK_ENV_VAR: Final = "LLMOPS_PEAK_TFLOPS"
"""The variable with which a user states the dense peak of one device."""

# Where a figure was read. Sparse figures of the sheets are halved.
_A100 = "NVIDIA A100 datasheet (nvidia-a100-datasheet-us-nvidia-1758950-r4)"
_H100 = "NVIDIA H100 datasheet; 989.4 = 528 tensor cores x 1024 FLOP x 1.83 GHz"
_H200 = "NVIDIA H200 datasheet"
_BLACKWELL = "NVIDIA Blackwell datasheet (HGX B200, GB200 NVL72)"
_ADA = "NVIDIA L40 and L40S datasheets"
_VOLTA = "NVIDIA V100 datasheet (volta-v100-datasheet-update-us-1165301-r5)"
_TF32_HALF = "TF32 is half of bfloat16 in each NVIDIA sheet since Ampere (A100 156, H100 494.7)"
_TABLES = "tables of torchtitan 0.3.0 and TRL 1.16, which agree"


@dataclass(frozen=True)
class Accelerator:
    """A device as PyTorch sees it."""

    name: str
    device_names: tuple[str, ...]
    """Exactly what `torch.cuda.get_device_name()` returns."""
    memory_bytes: int | None
    """As marketed, in decimal gigabytes; the device's own report is a little different."""
    bandwidth_bytes_per_second: float | None
    source: str
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    """Dense FLOP per second by dtype. `float32` is without TF32, PyTorch's default; `tf32` is that
    of float32 products in TF32."""
    watts: float | None = None
    """Highest board power by the same sheet, for estimates of energy."""
    unit: str = "GPU"
    """Name of a device: a GPU, or a GCD (half an MI250X)."""


def _row(
    name: str,
    *device_names: str,
    gb: float | None,
    gb_s: float | None,
    source: str,
    half: float | None = None,
    float16: float | None = None,
    float32: float | None = None,
    tf32: float | None = None,
    watts: float | None = None,
    unit: str = "GPU",
) -> Accelerator:
    """Return a row. `half`: TFLOPS of bfloat16 and float16, alike on every sheet since Ampere."""
    peaks = {
        "float32": float32,
        "tf32": tf32,
        "bfloat16": half,
        "float16": float16 if half is None else half,
    }
    return Accelerator(
        name=name,
        device_names=device_names,
        memory_bytes=None if gb is None else round(gb * 1e9),
        bandwidth_bytes_per_second=None if gb_s is None else gb_s * 1e9,
        source=source,
        peak_flops={dtype: peak * TFLOPS for dtype, peak in peaks.items() if peak is not None},
        watts=watts,
        unit=unit,
    )


# fmt: off
ACCELERATORS: Final[tuple[Accelerator, ...]] = (
    _row("A100 SXM 80GB", "NVIDIA A100-SXM4-80GB", gb=80, gb_s=2039, half=312, float32=19.5,
         tf32=156, watts=400, source=_A100),
    _row("A100 SXM 40GB", "NVIDIA A100-SXM4-40GB", gb=40, gb_s=1555, half=312, float32=19.5,
         tf32=156, watts=400, source=_A100),
    _row("A100 PCIe 80GB", "NVIDIA A100 80GB PCIe", gb=80, gb_s=1935, half=312, float32=19.5,
         tf32=156, watts=300, source=_A100),
    _row("A100 PCIe 40GB", "NVIDIA A100-PCIE-40GB", gb=40, gb_s=1555, half=312, float32=19.5,
         tf32=156, watts=250, source=_A100),
    _row("H100 SXM", "NVIDIA H100 80GB HBM3", gb=80, gb_s=3350, half=989.4, float32=67,
         tf32=494.7, watts=700, source=_H100),
    _row("H100 PCIe", "NVIDIA H100 PCIe", gb=80, gb_s=2000, half=756, float32=51,
         tf32=378, watts=350, source=_H100),
    _row("H100 NVL", "NVIDIA H100 NVL", gb=94, gb_s=3900, half=835, tf32=417.5,
         source=_H100),
    _row("H800 SXM", "NVIDIA H800", gb=80, gb_s=3350, half=989.4, tf32=494.7,
         source=f"same die and clock as the H100 SXM; {_TABLES}"),
    _row("H20", "NVIDIA H20", gb=96, gb_s=4000, half=148, tf32=74,
         source=f"{_TABLES}; {_TF32_HALF}"),
    _row("H200 SXM", "NVIDIA H200", gb=141, gb_s=4800, half=989.4, float32=67,
         tf32=494.7, watts=700, source=_H200),
    _row("H200 NVL", "NVIDIA H200 NVL", gb=141, gb_s=4800, source=_H200),
    _row("GH200", "NVIDIA GH200 480GB", gb=96, gb_s=4000, half=989.4, tf32=494.7,
         source="same die as the H100 SXM; ml-engineering accelerator table"),
    # 7.7 and 8 TB/s are both published.
    _row("B200", "NVIDIA B200", gb=180, gb_s=None, half=2250, float32=75, tf32=1125,
         source=f"{_BLACKWELL}; {_TF32_HALF}"),
    _row("GB200", "NVIDIA GB200", gb=186, gb_s=8000, half=2500, float32=80, tf32=1250,
         source=_BLACKWELL),
    # 262 to 288 GB, by document.
    _row("B300", "NVIDIA B300 SXM6 AC", gb=None, gb_s=8000, half=2250,
         source="NVIDIA HGX B300 datasheet: 36 PFLOPS sparse for eight"),
    _row("GB300", "NVIDIA GB300", gb=None, gb_s=8000, half=2500, source=_TABLES),
    _row("L4", "NVIDIA L4", gb=24, gb_s=300, half=121, float32=30.3, tf32=60,
         watts=72, source="NVIDIA L4 datasheet"),
    _row("L40", "NVIDIA L40", gb=48, gb_s=864, half=181.05, float32=90.5, tf32=90.5,
         watts=300, source=_ADA),
    _row("L40S", "NVIDIA L40S", gb=48, gb_s=864, half=362.05, float32=91.6, tf32=183,
         watts=350, source=_ADA),
    _row("A10", "NVIDIA A10", gb=24, gb_s=600, half=125, float32=31.2, tf32=62.5,
         watts=150, source="NVIDIA A10 datasheet"),
    _row("A10G", "NVIDIA A10G", gb=24, gb_s=600, source="AWS EC2 G5; no agreed peak"),
    _row("A40", "NVIDIA A40", gb=48, gb_s=696, half=149.7, tf32=74.8,
         watts=300, source="NVIDIA A40 datasheet"),
    # Volta and Turing have no bfloat16 and no TF32.
    _row("V100 SXM2 32GB", "Tesla V100-SXM2-32GB", gb=32, gb_s=900, float16=125, float32=15.7,
         watts=300, source=_VOLTA),
    _row("V100 SXM2 16GB", "Tesla V100-SXM2-16GB", gb=16, gb_s=900, float16=125, float32=15.7,
         watts=300, source=_VOLTA),
    _row("V100 PCIe 32GB", "Tesla V100-PCIE-32GB", gb=32, gb_s=900, float16=112, float32=14,
         watts=250, source=_VOLTA),
    _row("V100 PCIe 16GB", "Tesla V100-PCIE-16GB", gb=16, gb_s=900, float16=112, float32=14,
         watts=250, source=_VOLTA),
    _row("V100S PCIe", "Tesla V100S-PCIE-32GB", gb=32, gb_s=1134, float16=130, float32=16.4,
         watts=250, source=_VOLTA),
    _row("T4", "Tesla T4", gb=16, gb_s=320, float16=65, float32=8.1,
         watts=70, source="NVIDIA T4 datasheet (t4-tensor-core-datasheet-951643)"),
    # Not "MI250X/MI250", which many drivers report for either of two speeds.
    _row("MI250X", "AMD Instinct MI250X", gb=64, gb_s=1638.4, half=191.5, unit="GCD",
         source="AMD MI250X product page: 383 TFLOPS a package of two"),
    _row("MI300X", "AMD Instinct MI300X", "AMD Instinct MI300X OAM", gb=192, gb_s=5300, half=1307.4,
         watts=750, source="AMD MI300X datasheet"),
    _row("MI325X", "AMD Instinct MI325X", gb=256, gb_s=6000, half=1307.4,
         watts=1000, source="AMD MI325X datasheet"),
)
# fmt: on


def _key(device_name: str) -> str:
    """Normalise a device's name: drivers differ in case, spaces and the maker's name."""
    return " ".join(device_name.casefold().split()).removeprefix("nvidia ").removeprefix("amd ")


_BY_DEVICE_NAME: Final = {
    _key(name): accelerator
    for accelerator in ACCELERATORS
    for name in (accelerator.name, *accelerator.device_names)
}


def find(device_name: str) -> Accelerator | None:
    """Return the accelerator that PyTorch (or our own table) calls exactly that, or None."""
    return _BY_DEVICE_NAME.get(_key(device_name))


def peak_flops(device_name: str, dtype: str) -> float | None:
    """Return dense FLOP per second of a device at `dtype` ("bfloat16", "torch.bfloat16"), or None.

    "tf32" are float32 products that are computed in TF32.
    """
    accelerator = find(device_name)
    if accelerator is None:
        return None
    return accelerator.peak_flops.get(dtype.removeprefix("torch."))


def peak_flops_override(text: str | None) -> float | None:
    """Read the value of LLMOPS_PEAK_TFLOPS, TFLOPS of one device, as FLOP per second.

    None or empty means no override. Raises `ConfigError` on anything but a positive number.
    """
    if text is None or not text.strip():
        return None
    try:
        tflops = float(text)
    except ValueError:
        tflops = math.nan
    if not (math.isfinite(tflops) and tflops > 0):
        raise ConfigError(
            f"LLMOPS_PEAK_TFLOPS={text!r} is not a positive number.",
            remedy="give the dense peak of one device in TFLOPS, such as 989.4, or unset it",
        )
    return tflops * TFLOPS


# --- Host types: how many accelerators, how much memory and disk one machine has; data only ---


_GIB = 2**30
_GCP = "Google Cloud, accelerator-optimized machine family"
_AWS = "AWS EC2, accelerated computing instances"


@dataclass(frozen=True)
class HostType:
    """A type of machine."""

    name: str
    accelerator_name: str
    """A name of `hardware.accelerators`."""
    num_accelerators: int
    num_cpus: int | None
    """Hardware threads (vCPUs)."""
    memory_bytes: int
    disk_bytes: int | None
    """Local SSD."""
    source: str
    network_gbit: int | None = None
    """Gigabits a second that one machine sends to others, as advertised."""

    @property
    def network_bytes_per_second(self) -> float | None:
        return None if self.network_gbit is None else self.network_gbit * 1e9 / 8

    @property
    def accelerator(self) -> Accelerator | None:
        return find(self.accelerator_name)


HOSTS: Final[tuple[HostType, ...]] = (
    HostType(
        "onprem-4xa100", "A100 SXM 80GB", 4, None, 600 * 10**9, 3 * 10**12,
        "Uber, Open Source and In-House: How Uber Optimizes LLM Training (2024)",
    ),
    HostType("a2-highgpu-8g", "A100 SXM 40GB", 8, 96, 680 * _GIB, None, _GCP, 100),
    HostType("a2-ultragpu-8g", "A100 SXM 80GB", 8, 96, 1360 * _GIB, 3 * 10**12, _GCP, 100),
    HostType("a3-highgpu-8g", "H100 SXM", 8, 208, 1872 * _GIB, 6 * 10**12, _GCP, 1000),
    HostType("a3-megagpu-8g", "H100 SXM", 8, 208, 1872 * _GIB, 6 * 10**12, _GCP, 1800),
    HostType("a3-ultragpu-8g", "H200 SXM", 8, 224, 2952 * _GIB, 12 * 10**12, _GCP, 3600),
    HostType("p4d.24xlarge", "A100 SXM 40GB", 8, 96, 1152 * _GIB, 8 * 10**12, _AWS, 400),
    HostType("p4de.24xlarge", "A100 SXM 80GB", 8, 96, 1152 * _GIB, 8 * 10**12, _AWS, 400),
    HostType("p5.48xlarge", "H100 SXM", 8, 192, 2048 * _GIB, 8 * 3840 * 10**9, _AWS, 3200),
    HostType("p5en.48xlarge", "H200 SXM", 8, 192, 2048 * _GIB, 8 * 3840 * 10**9, _AWS, 3200),
)  # fmt: skip

_BY_NAME: Final = {host.name: host for host in HOSTS}


def find_host(name: str) -> HostType | None:
    """Return the host type of that name, or None."""
    return _BY_NAME.get(name.casefold())
