"""Host types: how many accelerators, how much memory and disk one machine has; data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llmops_kernel.hardware.accelerators import Accelerator, find

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

    @property
    def accelerator(self) -> Accelerator | None:
        return find(self.accelerator_name)


HOSTS: Final[tuple[HostType, ...]] = (
    HostType(
        "onprem-4xa100", "A100 SXM 80GB", 4, None, 600 * 10**9, 3 * 10**12,
        "Uber, Open Source and In-House: How Uber Optimizes LLM Training (2024)",
    ),
    HostType("a2-highgpu-8g", "A100 SXM 40GB", 8, 96, 680 * _GIB, None, _GCP),
    HostType("a2-ultragpu-8g", "A100 SXM 80GB", 8, 96, 1360 * _GIB, 3 * 10**12, _GCP),
    HostType("a3-highgpu-8g", "H100 SXM", 8, 208, 1872 * _GIB, 6 * 10**12, _GCP),
    HostType("a3-megagpu-8g", "H100 SXM", 8, 208, 1872 * _GIB, 6 * 10**12, _GCP),
    HostType("a3-ultragpu-8g", "H200 SXM", 8, 224, 2952 * _GIB, 12 * 10**12, _GCP),
    HostType("p4d.24xlarge", "A100 SXM 40GB", 8, 96, 1152 * _GIB, 8 * 10**12, _AWS),
    HostType("p4de.24xlarge", "A100 SXM 80GB", 8, 96, 1152 * _GIB, 8 * 10**12, _AWS),
    HostType("p5.48xlarge", "H100 SXM", 8, 192, 2048 * _GIB, 8 * 3840 * 10**9, _AWS),
    HostType("p5en.48xlarge", "H200 SXM", 8, 192, 2048 * _GIB, 8 * 3840 * 10**9, _AWS),
)  # fmt: skip

_BY_NAME: Final = {host.name: host for host in HOSTS}


def find_host(name: str) -> HostType | None:
    """Return the host type of that name, or None."""
    return _BY_NAME.get(name.casefold())
