"""What a plan is made of: the machines of a cluster template or this one, and a config's setup."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import psutil

from llmops_kernel.config.models.cluster import ClusterTemplate
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
from llmops_kernel.hardware.precision import AUTO, DeviceFacts, choose_dtype, cpu_name
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.metrics.planned import PlannedRun
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.learning import Learned, PastRun, device_key, learn
from llmops_kernel.planner.memory import Memory
from llmops_kernel.planner.of_config import attention_of, by_label, setup_of
from llmops_kernel.planner.plan import Hardware
from llmops_kernel.planner.setup import Setup
from llmops_kernel.planner.speed import EFFICIENCY, Rates, Work
from llmops_kernel.store.store import RunStore

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
    processor: str = ""
    """Name of the processor, as runs on it report it; empty: not known."""
    host: HostType | None = None
    node_hour: float | None = None
    kwh: float | None = None
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
            "the GPU's name is not in the template: memory and peak unknown"
            " (`llmops plan --device NAME`)"
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
        processor=cpu_name(),
        node_hour=price.node_hour,
        kwh=price.kwh,
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
        kwh=group.price.kwh,
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
        rates=_rates(machine, setup, network, tf32=tf32),
        watts=None if accelerator is None else accelerator.watts,
        node_hour=machine.node_hour,
        kwh=machine.kwh,
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


def _rates(machine: Machine, setup: Setup, network: float | None, *, tf32: bool) -> Rates | None:
    accelerator = machine.accelerator
    peak = peak_flops_override(os.environ.get(PEAK_ENV_VAR))
    if peak is None and accelerator is not None:
        peak = accelerator.peak_flops.get("tf32" if tf32 else setup.dtype)
    if peak is None:
        return None
    if network is None and machine.host is not None:
        network = machine.host.network_bytes_per_second
    return Rates(
        peak_flops=peak,
        memory_per_second=None if accelerator is None else accelerator.bandwidth_bytes_per_second,
        between_nodes=network or _NETWORK,
    )


# --- What earlier runs teach ---

_LOOKED_AT: Final = 300
"""So many newest runs of the store are looked at."""


def learned_of(
    runs: Sequence[PastRun], machine: Machine, setup: Setup, rates: Rates | None, *, tf32: bool
) -> Learned | None:
    """Return what runs on such devices teach, the oldest first; None without one."""
    if machine.on_gpu:
        name = machine.name if machine.accelerator is None else machine.accelerator.name
        threads = None
    else:
        name = machine.processor
        threads = cores_each(min(setup.num_workers, setup.workers_per_node))
    if not name:
        return None
    return learn(
        runs,
        family=setup.architecture.shape.model_type,
        attention=setup.attention,
        device=device_key(name, dtype="tf32" if tf32 else setup.dtype, threads=threads),
        on_gpu=machine.on_gpu,
        rates=rates,
    )


def past_runs(store: RunStore) -> list[PastRun]:
    """Return what the newest trainings were planned to do and what they took, the oldest first.

    A journal is read once, when its training has ended; the store's index keeps what is needed.
    """
    kept, new, runs = store.index.planned(), {}, []
    for run_id in reversed(store.ids()[:_LOOKED_AT]):
        text = kept.get(run_id, "")
        if not text.startswith("{"):  # Not measured when it was looked at.
            mark = store.fingerprint(run_id)
            if text != mark:
                new[run_id] = text = _planned_text(store.folder(run_id).journal) or mark
        if text.startswith("{") and (run := _past_run(text)) is not None:
            runs.append(run)
    store.index.put_planned(new)
    return runs


def _planned_text(journal: Path) -> str:
    """Return the newest start event with what was measured, as JSON; empty: there is none."""
    newest, written_s = "", 0.0
    for file in journal.glob("*-worker-*.jsonl"):
        with suppress(OSError, ValueError, KeyError):
            data = file.read_bytes()
            if (at := data.rfind(_MEASURED)) < 0:
                continue
            event = json.loads(data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)])
            if event["time_s"] > written_s and event["kind"] == "start":
                values = {"planned": event["planned"], "peak_flops": event["peak_flops"]}
                newest, written_s = json.dumps(values), event["time_s"]
    return newest


_MEASURED: Final = b'"measured":{'


def _past_run(text: str) -> PastRun | None:
    """Return a run of what the index has kept; None if another version counts work otherwise."""
    try:
        values = json.loads(text)
        planned = PlannedRun.model_validate(values["planned"])
        work, memory = Work(**planned.work), cast("Any", Memory)(**planned.memory)
    except (ValueError, KeyError, TypeError):
        return None
    measured = planned.measured
    if measured is None or not planned.tokens:
        return None
    step_s = planned.tokens / measured.tokens_per_second
    if measured.peak_memory_bytes is not None:  # On GPUs what is seen of it is assumed.
        step_s = max(step_s / 2, step_s - (planned.communication_s or 0.0))
        work = replace(work, sent_bytes=0.0)
    return PastRun(
        family=planned.family,
        attention=planned.attention,
        device=planned.device,
        work=work,
        step_s=step_s,
        peak_flops=values["peak_flops"],
        memory=memory,
        peak_memory_bytes=measured.peak_memory_bytes,
    )


def speed_assumptions(
    setup: Setup, rates: Rates | None, learned: Learned | None, *, has_network: bool, tf32: bool
) -> Iterator[str]:
    """Yield what the time of a plan takes for granted."""
    if rates is not None and not has_network and setup.num_workers > setup.workers_per_node:
        yield f"a node sends {_NETWORK / 1e9:g} GB/s to others (`llmops plan --network`)"
    if learned is not None:
        yield "reading of rows takes no time"
    elif rates is not None and rates.peak_flops is not None:
        yield (
            f"matrix products and attention reach {EFFICIENCY:.0%} of the dense peak"
            f" ({rates.peak_flops / 1e12:g} TFLOPS {'TF32' if tf32 else setup.dtype}); not learned"
            " from runs, for there is none on this device"
        )
        yield (
            "Python, launches of kernels and reading of rows take no time: steps of milliseconds"
            " are slower"
        )


# --- The training ---


def planned_setup(
    config: TrainingConfig,
    architecture: Architecture,
    machine: Machine,
    guess: Guess,
    assumptions: list[str],
) -> Setup:
    """Return a config as the planner needs it; what it does not say is added to `assumptions`."""
    assumptions += _assumed(config, architecture, guess, on_gpu=machine.on_gpu)
    share = guess.label_share
    return setup_of(
        config,
        architecture,
        dtype=_dtype(config, machine),
        attention=attention_of(config, architecture),
        on_gpu=machine.on_gpu,
        workers_per_node=machine.workers_per_node(config.parallelism.num_workers),
        mean_length=guess.mean_length,
        by_label=by_label(config),
        label_share=1.0 if share is None else share,
    )


def _assumed(
    config: TrainingConfig, architecture: Architecture, guess: Guess, *, on_gpu: bool
) -> Iterator[str]:
    """Yield what a plan of this config takes for granted."""
    data, training = config.data, config.training
    if by_label(config) and guess.label_share is None:
        yield "every token has a label (`llmops plan --label-share`)"
    if guess.mean_length is None:
        yield (
            f"every sequence has data.max_length = {data.max_length} tokens"
            " (`llmops plan --mean-length`)"
        )
    if training.freeze or training.train_only:
        yield "training.freeze and train_only are not considered: all is trained"
    if on_gpu and attention_of(config, architecture) == "eager":
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


def _dtype(config: TrainingConfig, machine: Machine) -> Any:
    """Return the number format that a run on this machine chooses."""
    if config.model.dtype == AUTO and config.performance.tf32:
        return "float32"
    accelerator = machine.accelerator
    has_bf16 = accelerator is None or "bfloat16" in accelerator.peak_flops
    device = DeviceFacts(name=machine.name, is_gpu=machine.on_gpu, has_bf16=has_bf16)
    return choose_dtype(config.model.dtype, device, trains=True).dtype
