"""The machines that a training is planned for: of a cluster template, or this one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.quantity import num_bytes
from llmops_kernel.config.models.section import AnyTemplate
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.hardware.accelerators import (
    ACCELERATORS,
    Accelerator,
    HostType,
    find,
    peak_flops_override,
)
from llmops_kernel.planner.plan import Hardware
from llmops_kernel.planner.setup import Setup
from llmops_kernel.planner.speed import EFFICIENCY, Rates

_NETWORK: Final = 12.5e9
"""Bytes a second that a node sends to others where nothing says more."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The devices of one node, as far as a template or this machine tells."""

    accelerator: Accelerator | None = None
    devices: int = 0
    """GPUs of a node; 0: none."""
    name: str = ""
    host_bytes: float | None = None
    host: HostType | None = None
    node_hour: float | None = None
    currency: str = ""
    nodes: int = 1

    @property
    def on_gpu(self) -> bool:
        return self.devices > 0

    def workers_per_node(self, num_workers: int) -> int:
        """Return the workers of one node: one a GPU; without GPUs they are spread evenly."""
        return self.devices or -(-num_workers // self.nodes)


def machine_of(
    template: AnyTemplate, config: TrainingConfig, device: str, assumptions: list[str]
) -> Machine:
    """Return the machine of a template; `device` names another accelerator, or `cpu`.

    Raises ConfigError for an unknown one.
    """
    machine = _local(template) if isinstance(template, ClusterTemplate) else _of_groups(template)
    if config.parallelism.use_gpu is False or device.casefold() == "cpu":
        return replace(machine, accelerator=None, devices=0, name="CPU")
    if device:
        accelerator = find(device)
        if accelerator is None:
            known = ", ".join(one.name for one in ACCELERATORS)
            raise ConfigError(
                f"No accelerator is called {device!r}.", remedy=f"known: {known}, cpu"
            )
        machine = replace(
            machine,
            accelerator=accelerator,
            devices=machine.devices or config.parallelism.num_workers,
            name=accelerator.name,
        )
    if machine.devices and machine.accelerator is None:
        assumptions.append(
            "the GPU's name is not in the template: memory and peak unknown (give --device)"
        )
    return machine


def _local(template: ClusterTemplate) -> Machine:
    names = _local_gpus()
    devices = len(names) if template.num_gpus is None else min(len(names), template.num_gpus)
    price = template.price
    return Machine(
        accelerator=find(names[0]) if devices else None,
        devices=devices,
        name=names[0] if devices else "CPU",
        host_bytes=_memory_of_this_machine(),
        node_hour=price.node_hour,
        currency=price.currency,
    )


def _local_gpus() -> list[str]:
    """Return the names of this machine's NVIDIA GPUs, as their driver reports them."""
    names = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in file.read_text().splitlines():
            if line.startswith("Model:"):
                names.append(line.partition(":")[2].strip())
    return names


def _memory_of_this_machine() -> float | None:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        return None


def _of_groups(template: AnyTemplate) -> Machine:
    """Return the machine of the first worker group with GPUs, else of the first."""
    groups = cast("Sequence[Any]", getattr(template, "worker_groups", ()))
    if not groups:
        return Machine()
    group = next((one for one in groups if one.pod_gpus), groups[0])
    host: HostType | None = group.host
    return Machine(
        accelerator=host.accelerator if host is not None else None,
        devices=group.pod_gpus,
        name=host.accelerator_name if host is not None else "",
        host_bytes=float(num_bytes(group.pod_memory)),
        host=host,
        node_hour=group.price.node_hour,
        currency=group.price.currency,
        nodes=max(1, group.replicas * group.num_hosts),
    )


def hardware_of(
    machine: Machine, setup: Setup, network: float | None, assumptions: list[str]
) -> Hardware:
    """Return what a machine can do for a training; what is not known is added to `assumptions`."""
    accelerator, memory_bytes = machine.accelerator, None
    if accelerator is not None and accelerator.memory_bytes is not None:
        memory_bytes = usable_bytes(accelerator)
    elif not machine.on_gpu and machine.host_bytes is not None:
        memory_bytes = machine.host_bytes / min(setup.num_workers, setup.workers_per_node)
        assumptions.append(
            "the workers share this machine's memory; what Python and its libraries need"
            " (0.7 GB a worker) is not in the plan"
        )
    return Hardware(
        name=machine.name,
        memory_bytes=memory_bytes,
        host_bytes=machine.host_bytes,
        rates=_rates(machine, setup, network, assumptions),
        watts=None if accelerator is None else accelerator.watts,
        node_hour=machine.node_hour,
        currency=machine.currency,
        devices_per_node=max(1, machine.devices),
    )


def usable_bytes(accelerator: Accelerator) -> float | None:
    """Return the memory that a device reports. "80 GB" of HBM are 79.6 GiB of an H100, 141 are
    140.4 of an H200; error correction takes a sixteenth of GDDR: "24 GB" are 22.5 GiB of an L4.
    """
    marketed, bandwidth = accelerator.memory_bytes, accelerator.bandwidth_bytes_per_second
    if marketed is None:
        return None
    is_hbm = bandwidth is None or bandwidth >= _HBM
    return marketed / 1e9 * 2**30 * (0.985 if is_hbm else 0.937)


_HBM: Final = 9.0e11
"""Bytes a second that boards with GDDR do not reach."""


def _rates(
    machine: Machine, setup: Setup, network: float | None, assumptions: list[str]
) -> Rates | None:
    accelerator = machine.accelerator
    peak = peak_flops_override(os.environ.get("LLMOPS_PEAK_TFLOPS"))
    if peak is None and accelerator is not None:
        peak = accelerator.peak_flops.get(setup.dtype)
    if peak is None:
        return None
    if network is None and machine.host is not None:
        network = machine.host.network_bytes_per_second
    if network is None and setup.num_workers > setup.workers_per_node:
        assumptions.append(f"a node sends {_NETWORK / 1e9:g} GB/s to others (give --network)")
    assumptions.append(
        f"matrix products and attention reach {EFFICIENCY:.0%} of the dense peak"
        f" ({peak / 1e12:g} TFLOPS {setup.dtype}); not learned from runs"
    )
    assumptions.append(
        "Python, launches of kernels and reading of rows take no time: steps of milliseconds are"
        " slower"
    )
    return Rates(
        peak_flops=peak,
        memory_per_second=None if accelerator is None else accelerator.bandwidth_bytes_per_second,
        between_nodes=network or _NETWORK,
    )
