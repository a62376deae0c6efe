"""A model that is mapped and copied to the GPU trains as one that is read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.train.model.kept import KEPT, MAPPED, move
from tests.gpu.trained import GPUS, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]


@pytest.mark.parametrize(
    "config",
    [
        {"method": "lora", "parallelism": {"strategy": "ddp"}},
        {"method": "lora", "parallelism": {"strategy": "zero2"}},
        {"method": "full", "parallelism": {"strategy": "zero2", "offload_optimizer": "cpu"}},
    ],
    ids=["lora", "lora-zero2", "zero2-offload"],
)
def test_losses_are_those_of_a_model_that_was_read(config: dict[str, Any], tmp_path: Path) -> None:
    keep = {"keep_bytes": 2**30, "user": str(tmp_path)}  # Nothing of an earlier session.
    read = trained(config, tmp_path, run="read", **keep)
    mapped = trained(config, tmp_path, run="mapped", **keep)
    assert (_words(read), _words(mapped)) == (KEPT, MAPPED)
    # Adding up the gradients of an embedding has no fixed order on a GPU.
    tolerance = 0.0 if config["method"] == "lora" else 1e-3
    assert _losses(mapped) == pytest.approx(_losses(read), rel=tolerance, abs=0.0)


def test_a_model_larger_than_the_buffers_is_the_same_on_the_gpu() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3001, 4001), torch.nn.Linear(4001, 3001))
    expected = {name: one.clone() for name, one in model.state_dict().items()}
    move(model, torch.device("cuda", 0))
    for name, one in model.state_dict().items():
        assert one.is_cuda
        assert torch.equal(one.cpu(), expected[name])


def _words(events: list[AnyEvent]) -> str:
    (end,) = (
        event
        for event in events
        if event.kind == "phase" and event.name == "model_load" and event.state == "end"
    )
    return end.detail


def _losses(events: list[AnyEvent]) -> list[float]:
    return [event.loss or 0.0 for event in events if event.kind == "step"]
