"""The start event: all that is known before the first step, with what the planner expects."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean, median
from typing import Any

import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.inputs import InputsLater, installed_versions, machine
from llmops_kernel.metrics.events import StartEvent
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.metrics.planned import MeasuredRun, PlannedRun
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.learning import device_key
from llmops_kernel.planner.memory import PARTS, memory
from llmops_kernel.planner.of_config import setup_of
from llmops_kernel.planner.plan import Hardware, largest_micro_batch
from llmops_kernel.planner.setup import Setup
from llmops_kernel.planner.speed import Rates, speed, work
from llmops_kernel.store.package.content import data_content, model_content
from llmops_kernel.train.collectives import barrier
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import Dataset
from llmops_kernel.train.data.examples import Example, Packed
from llmops_kernel.train.measure import device
from llmops_kernel.train.model.load import ParameterCount
from llmops_kernel.train.model.origin import Origin
from llmops_kernel.train.performance import Chosen, groups_by_length, labelled_share

_SAMPLED_ROWS = 256
"""Rows from all over an epoch whose lengths are looked at."""
_MOST_STEPS = 1000
"""So many last steps are what a run has measured."""
_SAME = 0.01
"""Share by which the trained weights may differ from those that the planner counts."""


def start_event(
    config: TrainingConfig,
    context: WorkerContext,
    data: Dataset,
    *,
    network: Any,
    parameters: ParameterCount,
    chosen: Chosen,
    evaluates: bool,
) -> StartEvent:
    """Return the start event; all workers call it alike."""
    measured = planned = None
    if context.is_main:
        measured = device.describe(
            use_gpu=context.use_gpu, dtype=config.model.dtype, cache_root=context.cache
        )
        try:
            setup = _known_setup(config, context, data, network, parameters, chosen)
            planned = setup and _planned(setup, config.method.type, measured)
        except Exception:  # Any model's config is read here, and no plan is worth a run.
            planned = None
    # The other workers wait, so that a first measurement of the CPU is not disturbed.
    barrier()
    return StartEvent(
        total_steps=0,
        num_workers=context.world_size,
        global_batch_size=config.training.global_batch_size,
        micro_batch_size=config.micro_batch_size,
        device=measured.name if measured else "",
        dtype=config.model.dtype,
        peak_flops=measured.peak_flops if measured else None,
        peak_source=measured.peak_source if measured else "",
        num_params=parameters.total,
        num_trainable=parameters.trainable,
        evaluate_every=(config.evaluation.every_steps or 0) if evaluates else 0,
        evaluates_at_end=config.evaluation.at_end and evaluates,
        save_every=config.checkpoint.every_steps or 0,
        num_rows=data.num_rows or 0,
        num_eval_rows=len(data.eval),
        num_tokens=data.num_tokens or 0,
        num_skipped=data.num_skipped,
        node_ids=(context.node_id,) if context.node_id else (),
        hosts=(context.host,) if context.host else (),
        versions=installed_versions(),
        performance="; ".join((*chosen.words, *data.words)),
        planned=planned,
    )


def journal_inputs(
    config: TrainingConfig, context: WorkerContext, origin: Origin, *, is_own_model: bool
) -> InputsLater | None:
    """Journal the content of data and model from a thread of rank 0, for `llmops reproduce`."""
    if not context.is_main:
        return None
    data = config.with_rows_read().data
    names = [*(source.path for source in data.sources), *([data.eval] if data.eval else [])]

    def gather() -> RunInputs:
        model = {} if is_own_model else model_content(origin.weights, origin.config.model.revision)
        if origin.adapter is not None:
            adapter = model_content(str(origin.adapter))
            model |= {f"adapter/{name}": value for name, value in adapter.items()}
        return RunInputs(
            versions=installed_versions(),
            machine=facts,
            data=data_content(names, context.roots),
            model=model,
        )

    facts = machine()
    return InputsLater(context.emit, gather)


# --- What the planner expects ---


def _known_setup(
    config: TrainingConfig,
    context: WorkerContext,
    data: Dataset,
    network: Any,
    parameters: ParameterCount,
    chosen: Chosen,
) -> Setup | None:
    """Return this run as the planner needs it; None for what the planner does not count."""
    is_known = not (
        config.performance.compile
        or config.objective.has_other_reference
        or config.objective.type == "kto"  # It asks both models for answers to other prompts too.
        or getattr(config.objective, "mini_batch_size", None) is not None
    )
    bare = network.get_base_model() if hasattr(network, "get_base_model") else network
    name = str(getattr(bare.config, "_attn_implementation", ""))
    attention: Any = "flash" if name.startswith("flash") else name
    architecture = Architecture.from_config(bare.config.to_dict())
    if not is_known or architecture is None or attention not in ("eager", "sdpa", "flash"):
        return None
    setup = setup_of(
        config,
        architecture,
        dtype=config.model.dtype,
        attention=attention,
        on_gpu=context.use_gpu,
        workers_per_node=context.local_world_size,
        by_label=chosen.label_logits,
        label_share=labelled_share(data.sample) if chosen.label_logits else 1.0,
    )
    if abs(setup.trained_params - parameters.trainable) > _SAME * parameters.trainable:
        return None  # A frozen part, or an adapter of another run.
    return _with_lengths(setup, config, data.sample, chosen)


def planned_micro_batch(
    config: TrainingConfig,
    context: WorkerContext,
    data: Dataset,
    *,
    network: Any,
    parameters: ParameterCount,
    chosen: Chosen,
    memory_bytes: float,
) -> int | None:
    """Return the largest micro batch that is expected to fit; None of what is not counted."""
    try:
        setup = _known_setup(config, context, data, network, parameters, chosen)
    except Exception:  # As of the plan in the start event.
        return None
    return largest_micro_batch(setup, Hardware(memory_bytes=memory_bytes)) if setup else None


def _planned(setup: Setup, method: str, measured: device.Device) -> PlannedRun:
    """Return the uncorrected plan of a run on a device."""
    is_tf32 = setup.on_gpu and setup.dtype == "float32" and device.uses_tf32()
    key = device_key(
        measured.name,
        dtype="tf32" if is_tf32 else setup.dtype,
        threads=None if setup.on_gpu else torch.get_num_threads(),
    )
    peak, needed = measured.peak_flops, memory(setup)
    assumed = None if peak is None else speed(setup, Rates(peak_flops=peak))
    return PlannedRun(
        family=setup.architecture.shape.model_type,
        attention=setup.attention,
        device=key,
        strategy=setup.strategy,
        method=method,
        tokens=(setup.mean_length or setup.length) * setup.sequences * _rows_of_step(setup),
        work=asdict(work(setup)),
        memory={part: getattr(needed, part) for part in PARTS},
        host_bytes=needed.host,
        step_time_s=None if assumed is None else assumed.step_s,
        communication_s=None if assumed is None else assumed.communication_s,
    )


def _rows_of_step(setup: Setup) -> int:
    return setup.micro_batch_size * setup.gradient_accumulation_steps * setup.num_workers


def _with_lengths(
    setup: Setup, config: TrainingConfig, sample: Sequence[Example | Packed], chosen: Chosen
) -> Setup:
    """Return the setup with the lengths of the rows, and the widths of their micro batches."""
    step = max(1, len(sample) // _SAMPLED_ROWS)
    rows = [_lengths(sample[index]) for index in range(0, len(sample), step)]
    lengths = [length for row in rows for length in row]
    if not lengths:
        return setup
    mean, widest = fmean(lengths), max(lengths)
    setup = replace(setup, sequences=round(len(lengths) / len(rows)))
    is_joined = config.data.packing or chosen.padding_free
    if chosen.padding_free:
        return replace(setup, length=widest, mean_length=mean)
    passes = setup.gradient_accumulation_steps if groups_by_length(config) else 1
    widths = _widths(rows, setup.micro_batch_size, passes, chosen.pad_to_multiple_of)
    # Each micro batch counts as often as it has rows.
    width = sum(each * count for each, count in widths) / sum(count for _, count in widths)
    return replace(
        setup,
        length=widest,
        mean_length=mean,
        padded_length=width,
        is_padded=is_joined or width > mean,
    )


def _lengths(row: Example | Packed) -> Sequence[int]:
    """Return the lengths of the sequences of a row; a packed one is computed as one."""
    is_packed = isinstance(row, Packed)
    return [len(row.input_ids)] if is_packed else getattr(row, "lengths", [len(row.input_ids)])


def _widths(
    rows: Sequence[Sequence[int]], size: int, passes: int, multiple: int
) -> list[tuple[int, int]]:
    """Return width and rows of each micro batch; those of one step are sorted by length before."""
    longest = [max(row) for row in rows]
    batches = []
    for begin in range(0, len(longest), size * passes):
        step = longest[begin : begin + size * passes]
        step = sorted(step, reverse=True) if passes > 1 else step
        batches += [step[at : at + size] for at in range(0, len(step), size)]
    return [(-(-max(batch) // multiple) * multiple, len(batch)) for batch in batches]


# --- What it reaches ---


class StepSpeeds:
    """Steps of this run, for the medians that are compared with its plan."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=_MOST_STEPS)

    def add(self, time_s: float, *, wait_s: float, tokens: int) -> None:
        """Add a step that began when the one before had ended."""
        self._steps.append((time_s, wait_s, tokens))

    def measured(self) -> MeasuredRun | None:
        """Return the medians; None without a step."""
        rates = [tokens / (time_s - wait) for time_s, wait, tokens in self._steps if time_s > wait]
        if not rates:
            return None
        on_gpu = torch.cuda.is_available()
        return MeasuredRun(
            steps=len(rates),
            step_time_s=median(time_s for time_s, _, _ in self._steps),
            tokens_per_second=median(rates),
            peak_memory_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
        )
