"""Each family of models trains through the worker loop, with all weights and with LoRA."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.train.measure.families import FAMILIES, build
from tests.train.test_loop import of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]


@pytest.fixture
def family(
    request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any
) -> tuple[Path, dict[str, Any]]:
    """A folder with a tiny random model of the family, and its weights."""
    folder = tmp_path / "model"
    model = build(request.param, device="cpu", vocab_size=len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, load_file(folder / "model.safetensors")


def one_step(config: Any, folder: Path, workspace: Path) -> tuple[Any, float]:
    """Train one step; return the start event and the loss."""
    events = run(config, folder, workspace)
    (start, *_), (step,) = of(events, "start"), of(events, "step")
    assert math.isfinite(step.loss)
    assert step.grad_norm > 0
    loss: float = step.loss
    return start, loss


@pytest.mark.parametrize("family", FAMILIES, indirect=True, ids=lambda name: name)
def test_a_family_trains_full_and_with_lora(
    family: tuple[Path, dict[str, Any]],
    make_config: Callable[..., Any],
    workspace: Path,
    tmp_path: Path,
) -> None:
    folder, before = family
    sections: dict[str, Any] = {
        "model": {"id": str(folder)},
        "training": {"micro_batch_size": 2, "global_batch_size": 2, "max_steps": 1},
        "optimizer": {"learning_rate": 1e-3},
    }
    start, full_loss = one_step(
        make_config(**sections, method="full"), tmp_path / "full", workspace
    )
    assert start.num_trainable == start.num_params
    (saved,) = (tmp_path / "full").rglob("model.safetensors")
    after = load_file(saved)
    assert after.keys() == before.keys()
    assert any((after[name] != before[name]).any() for name in before)

    lora = make_config(**sections, method={"type": "lora", "r": 2})
    start, lora_loss = one_step(lora, tmp_path / "lora", workspace)
    assert 0 < start.num_trainable < start.num_params / 4
    # An adapter begins as zero: the first loss is the model's own.
    assert lora_loss == pytest.approx(full_loss, abs=1e-4)
    (saved,) = (tmp_path / "lora").rglob("adapter_model.safetensors")
    trained = [tensor.any() for name, tensor in load_file(saved).items() if "lora_B" in name]
    # An expert that no token went to has not learnt.
    assert sum(trained) > len(trained) / 2
