"""FLOPs of a script's model: the same count as a run of a config has, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.metrics.model_work import required_flops
from llmops_kernel.track.model import describe_model
from llmops_kernel.train.measure.module_work import count_work
from llmops_kernel.train.measure.step_flops import script_flops
from llmops_kernel.train.measure.twin import make_twin
from tests.train.measure.families import build, with_lora


@pytest.mark.parametrize("name", ["falcon", "deepseek_v3", "glm", "gpt_neox"])
def test_a_family_that_no_table_knows_is_counted(name: str, tmp_path: Path) -> None:
    model = with_lora(build(name, device="cpu"))
    assert describe_model(model).flops_of is None
    flops_of = script_flops(model, cache=tmp_path)
    assert flops_of is not None
    work = count_work(make_twin(model)).work
    wanted = required_flops(work, tokens=100, sum_squared_lengths=1000)
    assert flops_of(100, 1000) == wanted
    (kept,) = (tmp_path / "flops").iterdir()
    again = script_flops(model, cache=tmp_path)
    assert again is not None
    assert again(100, 1000) == wanted
    kept.unlink()


def hooked(model: Any) -> Any:
    model.model.layers[0].register_forward_hook(lambda module, args, output: None)
    return model


def sharded(model: Any) -> Any:
    next(model.parameters()).ds_id = 0
    return model


@pytest.mark.parametrize("change", [hooked, sharded])
def test_a_model_whose_copy_would_run_other_code_is_not_counted(
    change: Any, tmp_path: Path
) -> None:
    assert script_flops(build("llama", device="cpu"), cache=tmp_path) is not None
    assert script_flops(change(build("llama", device="cpu")), cache=tmp_path) is None


def test_what_cannot_be_counted_is_unknown_and_raises_nothing(tmp_path: Path) -> None:
    assert script_flops(torch.nn.Linear(2, 2), cache=tmp_path) is None

    class OwnForCausalLM(torch.nn.Module):
        def forward(self, input_ids: Any) -> Any:
            raise RuntimeError("not on meta")

    assert script_flops(OwnForCausalLM(), cache=tmp_path) is None
