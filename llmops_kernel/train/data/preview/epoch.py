"""What an epoch is: steps, tokens, and the padding that the run's batches need."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.preview_job import Epoch, SourceReport
from llmops_kernel.train.data.examples import fit
from llmops_kernel.train.data.widths import padded_width, width_multiple
from llmops_kernel.train.performance.grouping import by_length, groups_by_length


@dataclass(frozen=True)
class _Sequence:
    """A sequence of which only the length matters."""

    input_ids: range


def epoch(
    config: TrainingConfig,
    report: SourceReport,
    lengths: Sequence[int],
    *,
    are_sequences: bool = False,
) -> Epoch:
    """Return what one pass over the rows is; `lengths` are those of rows that are used.

    With `are_sequences` they are those of packed sequences where the config packs.
    """
    training, workers = config.training, config.parallelism.num_workers
    sizes = list(lengths) if are_sequences else sequences(config, lengths)
    sequences_found = _scaled(len(sizes), report)
    steps = None if sequences_found is None else num_steps(config, sequences_found)
    use_gpu = config.parallelism.use_gpu
    batches = None if report.is_sample and not config.data.shuffle else _batches(config, sizes)
    cpu, gpu = (_padding(config, batches, use_gpu=on) for on in (False, True))
    return Epoch(
        num_workers=workers,
        micro_batch_size=training.micro_batch_size,
        accumulation_steps=config.gradient_accumulation_steps,
        global_batch_size=training.global_batch_size,
        packing=config.data.packing,
        padding_free=config.performance.padding_free,
        groups_by_length=groups_by_length(config),
        sequences=sequences_found,
        steps=steps,
        tokens=_scaled(report.num_tokens, report),
        is_estimate=report.is_sample,
        padding_cpu=None if use_gpu is True else cpu,
        padding_gpu=None if use_gpu is False else gpu,
        run_steps=_run_steps(config, steps),
        has_max_steps=training.max_steps is not None,
    )


def num_steps(config: TrainingConfig, sequences: int) -> int:
    """Return the optimizer steps of an epoch, as Transformers' Trainer makes them.

    Each worker gets as many micro batches as the others; the last step may have fewer of them.
    """
    per_pass = config.training.micro_batch_size * config.parallelism.num_workers
    micro_batches = -(-sequences // per_pass)
    return max(1, -(-micro_batches // config.gradient_accumulation_steps))


def _run_steps(config: TrainingConfig, steps: int | None) -> int | None:
    if config.training.max_steps is not None:
        return config.training.max_steps
    return None if steps is None else -int(-config.training.num_epochs * steps // 1)


def sequences(config: TrainingConfig, lengths: Sequence[int]) -> list[int]:
    """Return the tokens of each sequence that rows of these lengths become."""
    if not config.data.packing:
        return list(lengths)
    packs = fit(lengths, max_length=config.data.max_length)
    return [sum(lengths[index] for index in members) for members in packs]


def _scaled(found: int, report: SourceReport) -> int | None:
    """Return a number of the tokenised rows for all rows."""
    if report.total_rows is None:
        return None
    return round(found * report.total_rows / report.num_rows)


def _batches(config: TrainingConfig, sizes: Sequence[int]) -> list[list[_Sequence]]:
    """Return the micro batches of an epoch, in the order in which a run might see the rows."""
    order = [_Sequence(range(size)) for size in sizes]
    if config.data.shuffle:
        random.Random(config.seed).shuffle(order)
    size = config.training.micro_batch_size
    found = [order[first : first + size] for first in range(0, len(order), size)]
    if not groups_by_length(config):
        return found
    return [batch for step in _steps(config, found) for batch in by_length(step)]


def _steps(
    config: TrainingConfig, batches: Sequence[list[_Sequence]]
) -> Iterator[Sequence[list[_Sequence]]]:
    """Yield the micro batches that a worker reads for one optimizer step."""
    count = config.gradient_accumulation_steps
    for worker in range(config.parallelism.num_workers):
        own = batches[worker :: config.parallelism.num_workers]
        for first in range(0, len(own), count):
            yield own[first : first + count]


def _padding(
    config: TrainingConfig, batches: Sequence[Sequence[_Sequence]] | None, *, use_gpu: bool
) -> float | None:
    """Return the share of positions that is padding."""
    if not batches:
        return None
    multiple = width_multiple(use_gpu=use_gpu)
    tokens = positions = 0
    for batch in batches:
        sizes = [len(one.input_ids) for one in batch]
        if config.performance.padding_free:
            sizes = [sum(sizes)]
        tokens += sum(sizes)
        positions += padded_width(max(sizes), multiple) * len(sizes)
    return 1 - tokens / positions
