"""What a plan is made of: the machines of a cluster template or this one, and a config's setup."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import psutil

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.methods import AdapterMethod, QloraMethod
from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.quantity import num_bytes
from llmops_kernel.config.models.section import AnyTemplate
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.hardware.accelerators import (
    ACCELERATORS,
    PEAK_ENV_VAR,
    Accelerator,
    HostType,
    find,
    peak_flops_override,
)
from llmops_kernel.hardware.precision import AUTO, DeviceFacts, choose_dtype
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.plan import Hardware
from llmops_kernel.planner.setup import Lora, Setup
from llmops_kernel.planner.speed import EFFICIENCY, Rates

_NETWORK: Final = 12.5e9
"""Bytes a second that a node sends to others where nothing says more."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What neither a config nor a template says; None takes a stated assumption."""

    device: str | None = None
    """Name of an accelerator, such as `H100 SXM`; `cpu`."""
    mean_length: float | None = None
    label_share: float | None = None
    rows: int | None = None
    network: float | None = None
    """Bytes a second that a node sends to others."""
    model_config: Path | str | None = None
    """The model's `config.json`."""


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
        host_bytes=float(psutil.virtual_memory().total),
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
    machine: Machine,
    setup: Setup,
    network: float | None,
    assumptions: list[str],
    *,
    tf32: bool = False,
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
        rates=_rates(machine, setup, network, assumptions, tf32=tf32),
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
    machine: Machine, setup: Setup, network: float | None, assumptions: list[str], *, tf32: bool
) -> Rates | None:
    accelerator = machine.accelerator
    peak = peak_flops_override(os.environ.get(PEAK_ENV_VAR))
    if peak is None and accelerator is not None:
        peak = accelerator.peak_flops.get("tf32" if tf32 else setup.dtype)
    if peak is None:
        return None
    if network is None and machine.host is not None:
        network = machine.host.network_bytes_per_second
    if network is None and setup.num_workers > setup.workers_per_node:
        assumptions.append(f"a node sends {_NETWORK / 1e9:g} GB/s to others (give --network)")
    assumptions.append(
        f"matrix products and attention reach {EFFICIENCY:.0%} of the dense peak"
        f" ({peak / 1e12:g} TFLOPS {'TF32' if tf32 else setup.dtype}); not learned from runs"
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


# --- The training ---

_PAIRED: Final = ("dpo", "orpo", "simpo", "reward")


def setup_of(
    config: TrainingConfig,
    architecture: Architecture,
    machine: Machine,
    guess: Guess,
    assumptions: list[str],
) -> Setup:
    """Return a config as the planner needs it; what it does not say is added to `assumptions`."""
    parallelism, performance, data = config.parallelism, config.performance, config.data
    objective, training = config.objective, config.training
    assumptions += _assumed(config, architecture, guess, on_gpu=machine.on_gpu)
    share = guess.label_share
    joined = data.packing or performance.padding_free
    return Setup(
        architecture=architecture,
        lora=_lora(config),
        dtype=_dtype(config, machine),
        strategy=cast("Any", parallelism.strategy),
        num_workers=parallelism.num_workers,
        workers_per_node=machine.workers_per_node(parallelism.num_workers),
        offload_optimizer=bool(parallelism.offload_optimizer),
        offload_params=parallelism.offload_params,
        checkpointing=parallelism.gradient_checkpointing,
        attention=_attention(config, architecture),
        optimizer=config.optimizer.type,
        micro_batch_size=training.micro_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        length=data.max_length,
        mean_length=guess.mean_length,
        is_padded=training.micro_batch_size > 1 or joined,
        sequences=2 if objective.type in (*_PAIRED, "embed") else 1,
        has_head=objective.output == "text",
        logits="fused" if performance.fused_loss else "labels" if _by_label(config) else "all",
        label_share=1.0 if share is None else share,
        references=1 if objective.has_reference and not objective.has_other_reference else 0,
        on_gpu=machine.on_gpu,
        **_of_deepspeed(config),
    )


def _by_label(config: TrainingConfig) -> bool:
    performance = config.performance
    has_logits = config.objective.output == "text"
    return performance.automatic and has_logits and not performance.compile


def _assumed(
    config: TrainingConfig, architecture: Architecture, guess: Guess, *, on_gpu: bool
) -> Iterator[str]:
    """Yield what a plan of this config takes for granted."""
    data, training = config.data, config.training
    if _by_label(config) and guess.label_share is None:
        yield "every token has a label (give --label-share)"
    if guess.mean_length is None:
        yield f"every sequence has data.max_length = {data.max_length} tokens (give --mean-length)"
    if training.freeze or training.train_only:
        yield "training.freeze and train_only are not considered: all is trained"
    if on_gpu and _attention(config, architecture) == "eager":
        yield "eager attention is as fast as others, which it is not on GPUs"
    if config.objective.type == "embed":
        yield "a row has a query and one positive"
    unused = {
        "objective.mini_batch_size": getattr(config.objective, "mini_batch_size", None),
        "training_arguments": config.training_arguments,
        "hooks.file": config.hooks.file,
        "performance.compile": config.performance.compile,
        "evaluation.micro_batch_size": config.evaluation.micro_batch_size,
    }
    if given := [name for name, value in unused.items() if value]:
        yield f"{', '.join(given)}: not considered"


def _lora(config: TrainingConfig) -> Lora | None:
    method = config.method
    if not isinstance(method, AdapterMethod):
        return None
    of_qlora = method if isinstance(method, QloraMethod) else None
    return Lora(
        r=method.r,
        target_modules=method.target_modules,
        dropout=method.lora_dropout,
        dora=method.use_dora,
        bits=None if of_qlora is None else 4,
        double_quant=of_qlora is None or of_qlora.bnb_4bit_use_double_quant,
    )


def _dtype(config: TrainingConfig, machine: Machine) -> Any:
    """Return the number format that a run on this machine chooses."""
    if config.model.dtype == AUTO and config.performance.tf32:
        return "float32"
    accelerator = machine.accelerator
    has_bf16 = accelerator is None or "bfloat16" in accelerator.peak_flops
    device = DeviceFacts(name=machine.name, is_gpu=machine.on_gpu, has_bf16=has_bf16)
    return choose_dtype(config.model.dtype, device, trains=True).dtype


def _attention(config: TrainingConfig, architecture: Architecture) -> Any:
    name = config.model.attention
    if name.startswith("flash"):
        return "flash"
    if name == "auto":
        return "eager" if architecture.traits.softcap else "sdpa"
    return name


def _of_deepspeed(config: TrainingConfig) -> dict[str, int]:
    parallelism = config.parallelism
    if not isinstance(parallelism, ZeroStrategy):
        return {}
    zero = parallelism.deepspeed.get("zero_optimization")
    given = zero if isinstance(zero, Mapping) else {}
    names = {"bucket": "reduce_bucket_size", "max_live": "stage3_max_live_parameters"}
    return {
        key: int(given[name])
        for key, name in names.items()
        if isinstance(given.get(name), int | float)
    }
