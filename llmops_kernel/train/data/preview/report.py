"""Sums up what was found in the rows of a source."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.preview_job import (
    Bin,
    Epoch,
    FieldUse,
    Leaks,
    Lengths,
    SourceReport,
    SourceRows,
)
from llmops_kernel.train.data.collate import padded_width, width_multiple
from llmops_kernel.train.data.examples import fit
from llmops_kernel.train.data.preview.look import Formatted, RowSizes, Sample, fingerprint
from llmops_kernel.train.performance import by_length, groups_by_length

_BINS = 20
_BEYOND = 4
"""Multiple of `max_length` at which the histogram ends; longer rows are in one last bin."""
_NAMED = 5
"""Groups of duplicates, leaks and masked rows that are named."""


def source_report(
    source: str,
    sample: Sample,
    rows: Sequence[Formatted],
    measurements: Sequence[RowSizes],
    *,
    max_length: int,
) -> SourceReport:
    """Return the figures of one source."""
    used = [row for row in measurements if row.num_loss]
    masked = [row for row in measurements if not row.num_loss]
    before = source_rows(source, sample, rows)
    coverage = before.where or (
        "" if len(measurements) == len(rows) else "from all over the source"
    )
    return SourceReport(
        **before.model_copy(update={"where": coverage}).model_dump(),
        num_rows=len(measurements),
        lengths=_lengths([row.length for row in measurements], max_length),
        num_cut=sum(row.is_cut for row in measurements),
        num_split=sum(len(row.sequences) > 1 and not row.is_apart for row in measurements),
        num_apart=sum(row.is_apart for row in measurements),
        num_sequences=sum(len(row.sequences) for row in measurements),
        num_masked=len(masked),
        masked=[row.number for row in masked if row.number is not None][:_NAMED],
        num_tokens=sum(sum(row.sequences) for row in used),
        num_loss=sum(row.num_loss for row in used),
    )


def source_rows(source: str, sample: Sample, rows: Sequence[Formatted]) -> SourceRows:
    """Return what is known of the rows before they are tokenised."""
    groups = _groups(rows)
    numbers = [[row.source_row.number for row in group] for group in groups if len(group) > 1]
    unanswered = [row.source_row.number for row in rows if not row.is_answered]
    return SourceRows(
        source=source,
        total_rows=sample.total,
        is_estimate=sample.is_estimate,
        num_compared=len(rows),
        where=sample.where,
        formats=dict(Counter(row.format for row in rows).most_common()),
        num_duplicates=len(rows) - len(groups),
        duplicates=[[n for n in group if n is not None][:_NAMED] for group in numbers[:_NAMED]],
        num_unanswered=len(unanswered),
        unanswered=[number for number in unanswered if number is not None][:_NAMED],
        fields=[
            FieldUse(text=use.said(count), rows=count)
            for use, count in sorted(Counter(use for row in rows for use in row.uses).items())
        ],
        unused=sorted({name for row in rows for name in row.unused}),
    )


def leaks(train: Sequence[Formatted], held_out: Sequence[Formatted]) -> Leaks:
    """Return the evaluation rows that are training rows too."""
    trained = {fingerprint(row.row): row.source_row.number for row in reversed(train)}
    both = [row for row in held_out if fingerprint(row.row) in trained]
    pairs = [(row.source_row.number, trained[fingerprint(row.row)]) for row in both]
    numbered = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return Leaks(rows=len(both), of=len(held_out), pairs=numbered[:_NAMED])


def _groups(rows: Sequence[Formatted]) -> list[list[Formatted]]:
    """Return rows that are the same, together; in the order of their first."""
    groups: dict[bytes, list[Formatted]] = {}
    for row in rows:
        groups.setdefault(fingerprint(row.row), []).append(row)
    return list(groups.values())


def _lengths(lengths: Sequence[int], max_length: int) -> Lengths:
    ordered = sorted(lengths)
    return Lengths(
        shortest=ordered[0],
        median=ordered[len(ordered) // 2],
        mean=sum(ordered) / len(ordered),
        longest=ordered[-1],
        bins=length_bins(ordered, max_length),
    )


def length_bins(ordered: Sequence[int], max_length: int) -> list[Bin]:
    """Return about twenty bins; `max_length` is an edge where rows are longer."""
    shortest, longest = ordered[0], ordered[-1]
    if longest <= max_length:
        width = _round_width((longest - shortest + 1) / _BINS)
        first = max(0, (shortest - 1) // width * width)
        edges = list(range(first, longest + width, width))
    else:
        below = max(5, round(_BINS * max_length / min(longest, _BEYOND * max_length)))
        step = max_length / min(below, max_length)
        count = math.ceil(min(longest, _BEYOND * max_length) / step)
        edges = sorted({0, *(round(step * i) for i in range(1, count + 1))})
    edges[0] = min(edges[0], shortest - 1)  # rows without any token
    bins = [
        Bin(above=low, up_to=high, rows=sum(low < length <= high for length in ordered))
        for low, high in itertools.pairwise(edges)
    ]
    while len(bins) > 1 and not bins[0].rows:
        del bins[0]
    beyond = sum(length > edges[-1] for length in ordered)
    return [*bins, Bin(above=edges[-1], up_to=None, rows=beyond)] if beyond else bins


def _round_width(width: float) -> int:
    """Return the next of 1, 2, 5, 10, 20 ..."""
    size = 1
    while True:
        for digit in (1, 2, 5):
            if digit * size >= width:
                return digit * size
        size *= 10


# --- Epoch: steps, tokens and padding ---


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
    is_auto = training.micro_batch_size == "auto"
    is_known = (
        not is_auto and not config.objective.rows and (config.data.shuffle or not report.is_sample)
    )
    batches = _batches(config, sizes) if is_known else None
    cpu, gpu = (_padding(config, batches, use_gpu=on) for on in (False, True))
    return Epoch(
        num_workers=workers,
        micro_batch_size=None if is_auto else config.micro_batch_size,
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
    per_pass = config.micro_batch_size * config.parallelism.num_workers
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


def _scaled(count: int, report: SourceReport) -> int | None:
    """Return a number of the tokenised rows for all rows."""
    if report.total_rows is None:
        return None
    return round(count * report.total_rows / report.num_rows)


def _batches(config: TrainingConfig, sizes: Sequence[int]) -> list[list[_Sequence]]:
    """Return the micro batches of an epoch, in the order in which a run might see the rows."""
    order = [_Sequence(range(size)) for size in sizes]
    if config.data.shuffle:
        random.Random(config.seed).shuffle(order)
    size = config.micro_batch_size
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    if not groups_by_length(config):
        return batches
    return [batch for step in _steps(config, batches) for batch in by_length(step)]


def _steps(
    config: TrainingConfig, batches: Sequence[list[_Sequence]]
) -> Iterator[Sequence[list[_Sequence]]]:
    """Yield the micro batches that a worker reads for one optimizer step."""
    count = config.gradient_accumulation_steps
    for worker in range(config.parallelism.num_workers):
        worker_batches = batches[worker :: config.parallelism.num_workers]
        for first in range(0, len(worker_batches), count):
            yield worker_batches[first : first + count]


def _padding(
    config: TrainingConfig, batches: Sequence[Sequence[_Sequence]] | None, *, use_gpu: bool
) -> float | None:
    """Return the share of positions that is padding."""
    if not batches:
        return None
    multiple = width_multiple(use_gpu=use_gpu)
    tokens = positions = 0
    for batch in batches:
        sizes = [len(sequence.input_ids) for sequence in batch]
        if config.performance.padding_free:
            sizes = [sum(sizes)]
        tokens += sum(sizes)
        positions += padded_width(max(sizes), multiple) * len(sizes)
    return 1 - tokens / positions
