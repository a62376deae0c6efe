"""Steps and padding of an epoch, against Accelerate's sampler and our own collator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.preview_job import Lengths, SourceReport
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.data.examples import Example, pack
from llmops_kernel.train.data.preview.report import epoch, num_steps
from llmops_kernel.train.performance import Grouping

LENGTHS = [7, 3, 30, 12, 12, 25, 4, 9, 31, 2, 18, 6, 22, 5]


def config(**sections: Any) -> TrainingConfig:
    base = {"model": "tiny-llama", "data": {"train": "x", "max_length": 32, "shuffle": False}}
    data = {**base["data"], **sections.pop("data", {})}  # type: ignore[dict-item]
    return TrainingConfig.model_validate({**base, "data": data, **sections})


def batches(micro: int, workers: int, accumulation: int) -> dict[str, Any]:
    return {
        "training": {
            "micro_batch_size": micro,
            "global_batch_size": micro * workers * accumulation,
        },
        "parallelism": {"num_workers": workers, "strategy": "ddp"},
    }


def report(rows: int, total: int | None = None) -> SourceReport:
    lengths = Lengths(shortest=1, median=1, mean=1.0, longest=1, bins=[])
    return SourceReport(
        source="x",
        total_rows=rows if total is None else total,
        is_estimate=False,
        num_compared=rows,
        num_rows=rows,
        where="",
        formats={"text": rows},
        lengths=lengths,
        num_cut=0,
        num_masked=0,
        masked=[],
        num_tokens=sum(LENGTHS),
        num_loss=0,
        num_duplicates=0,
        duplicates=[],
    )


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None)
def test_steps_are_those_of_accelerates_sampler(
    rows: int, micro: int, workers: int, accumulation: int
) -> None:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    shard = BatchSamplerShard(BatchSampler(range(rows), micro, False), workers, 0)
    made = config(**batches(micro, workers, accumulation))
    wanted = max(len(shard) // accumulation + int(len(shard) % accumulation > 0), 1)
    assert num_steps(made, rows) == wanted


def test_a_size_that_the_run_looks_for_is_not_known() -> None:
    training = {"micro_batch_size": "auto", "global_batch_size": 12}
    pass_over = epoch(config(training=training), report(len(LENGTHS)), LENGTHS)
    assert pass_over.micro_batch_size is None
    assert pass_over.padding_cpu is None
    assert pass_over.steps == 2  # 14 rows


def padding_of(collate: Callable[[Any], dict[str, Any]], made: TrainingConfig) -> float:
    """Count the padding in the batches that the collator really makes."""
    rows: Any = [Example([1] * size, [1] * size) for size in LENGTHS]
    if made.data.packing:
        rows = pack(rows, max_length=made.data.max_length)
    size, steps = made.training.micro_batch_size, made.gradient_accumulation_steps
    split = iter([rows[first : first + size] for first in range(0, len(rows), size)])
    grouping, found = Grouping(collate), []
    if made.performance.group_by_length is True:
        while done := list(grouping.batches(split, steps)):
            found += done
    else:
        found = [collate(batch) for batch in split]
    positions = sum(batch["input_ids"].numel() for batch in found)
    return 1 - sum(LENGTHS) / positions


@pytest.mark.parametrize("use_gpu", [False, True])
@pytest.mark.parametrize(
    "sections",
    [
        {"performance": {"mode": "off"}},
        {"performance": {"group_by_length": True}},
        {"performance": {"mode": "off"}, "data": {"packing": True}},
        {"performance": {"mode": "off", "padding_free": True}},
    ],
)
def test_padding_is_that_of_the_collator(sections: dict[str, Any], use_gpu: bool) -> None:
    made = config(**batches(2, 1, 3), **sections)
    collator = Collator(
        pad_token_id=0,
        pad_to_multiple_of=8 if use_gpu else 1,
        padding_free=made.performance.padding_free,
    )
    found = epoch(made, report(len(LENGTHS)), LENGTHS)
    share = found.padding_gpu if use_gpu else found.padding_cpu
    assert share == pytest.approx(padding_of(collator, made))


def test_devices_that_the_config_excludes_have_no_padding() -> None:
    only_cpu = config(parallelism={"use_gpu": False, "strategy": "ddp"})
    found = epoch(only_cpu, report(len(LENGTHS)), LENGTHS)
    assert found.padding_gpu is None
    assert found.padding_cpu is not None


def test_a_sample_is_extrapolated() -> None:
    made = config(data={"shuffle": True}, **batches(2, 2, 2))
    found = epoch(made, report(len(LENGTHS), total=1400), LENGTHS)
    assert (found.sequences, found.steps, found.is_estimate) == (1400, 175, True)
    assert found.tokens == sum(LENGTHS) * 100
    assert found.run_steps == 175


def test_padding_of_a_sample_in_the_order_of_the_file_is_unknown() -> None:
    found = epoch(config(), report(len(LENGTHS), total=1400), LENGTHS)
    assert (found.padding_cpu, found.padding_gpu) == (None, None)


def test_half_an_epoch_is_half_the_steps() -> None:
    made = config(training={"micro_batch_size": 1, "global_batch_size": 2, "num_epochs": 0.5})
    assert epoch(made, report(len(LENGTHS)), LENGTHS).run_steps == 4
