"""The held-out loss is that of all logits, although most of them are never computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from llmops_kernel.metrics.events import Event, ProgressEvent
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import IGNORED
from llmops_kernel.train.evaluation import RowCount, summed_loss


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(tiny_llama)).eval()


def labels_of(first_labels: list[int], ids: torch.Tensor) -> torch.Tensor:
    """Answers that begin at a position of their own and end two tokens before the padding."""
    labels = torch.full_like(ids, IGNORED)
    for row, first in enumerate(first_labels):
        labels[row, first:-2] = ids[row, first:-2]
    return labels


@pytest.mark.parametrize("first_labels", [[12, 15, 9], [0, 3, 18], [1, 1, 1], [17, 17, 17]])
def test_the_loss_is_that_of_the_whole_sequence(model: Any, first_labels: list[int]) -> None:
    ids = torch.randint(0, 250, (3, 20), generator=torch.Generator().manual_seed(0))
    labels = labels_of(first_labels, ids)
    with torch.no_grad():
        loss, count = summed_loss(model, {"input_ids": ids}, labels=labels)
        logits = model(input_ids=ids).logits
    expected = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
    )
    assert torch.allclose(loss, expected, rtol=1e-5)
    assert count == int((labels[:, 1:] != IGNORED).sum())


def test_a_batch_without_labels_adds_nothing(model: Any) -> None:
    ids = torch.zeros((2, 8), dtype=torch.long)
    loss, count = summed_loss(model, {"input_ids": ids}, labels=torch.full_like(ids, IGNORED))
    assert (float(loss), count) == (0.0, 0)


def test_logits_before_the_first_label_are_not_computed(model: Any) -> None:
    ids = torch.randint(0, 250, (2, 32))
    labels = labels_of([24, 28], ids)
    sizes: list[int] = []
    hook = model.lm_head.register_forward_hook(
        lambda module, inputs, output: sizes.append(output.shape[1])
    )
    with torch.no_grad():
        summed_loss(model, {"input_ids": ids}, labels=labels)
    hook.remove()
    assert sizes == [32 - 23]


class Journal:
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


@pytest.mark.parametrize(("world", "unit"), [(1, "rows"), (2, "rows of the first of 2 workers")])
def test_rows_of_an_evaluation_are_counted_and_few_events_are_written(
    world: int, unit: str, tmp_path: Path
) -> None:
    journal, now_s = Journal(), [0.0]
    context = WorkerContext(
        run_id="r", folder=tmp_path, workspace=tmp_path, world_size=world, journal=journal
    )
    count = RowCount(context, total=1000, unit="rows", clock=lambda: now_s[0])
    for _ in range(1000):  # 100 rows a second
        now_s[0] += 0.01
        count.add(1)
    found = [event for event in journal.events if isinstance(event, ProgressEvent)]
    assert [event.done for event in found] == pytest.approx([0, 200, 400, 600, 800], abs=5)
    assert {(event.total, event.unit) for event in found} == {(1000, unit)}
    assert found[0].values == {}
    assert found[-1].values["per_second"] == pytest.approx(100, rel=0.02)
