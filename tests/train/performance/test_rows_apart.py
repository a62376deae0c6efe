"""Rows of one sequence must not attend to each other: each family is asked itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from llmops_kernel.errors import ConfigError
from llmops_kernel.metrics.events import StartEvent
from llmops_kernel.train.verify import mixing_problem
from tests.train.measure.families import FAMILIES, SIZES, build, from_config
from tests.train.test_loop import of, run

CPU = torch.device("cpu")
MIXING = {"falcon", "falcon (new)", "opt", "bloom", "gpt_oss"}
"""In Transformers 5.23 these make their attention mask without the positions."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_keeps_rows_apart_or_is_found_out(name: str) -> None:
    model = build(name, device="cpu")
    problem = mixing_problem(model, device=CPU)
    assert (problem != "") == (name in MIXING), problem
    assert model.training


def test_alibi_with_a_mask_of_its_own_is_found_out() -> None:
    sizes = {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 300}
    config = transformers.AutoConfig.for_model("mpt", **sizes)
    assert mixing_problem(from_config(config, device="cpu"), device=CPU)


@pytest.mark.parametrize("kind", ["llama", "falcon", "gemma3_text", "opt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_of_pytorch_and_16_bits_are_told_apart_as_well(
    kind: str, dtype: torch.dtype
) -> None:
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **FAMILIES[kind]})
    config._attn_implementation = "sdpa"
    model = from_config(config, device="cpu").to(dtype)
    problem = mixing_problem(model, device=CPU, is_float32=dtype == torch.float32)
    assert (problem != "") == (kind in MIXING), problem


def test_a_model_of_which_nothing_can_be_said() -> None:
    class NoLogits(torch.nn.Module):
        def forward(self, input_ids: Any, position_ids: Any) -> Any:
            return input_ids

    assert mixing_problem(NoLogits(), device=CPU) is None
    broken = build("llama", device="cpu")
    broken.get_output_embeddings().weight.data.fill_(float("nan"))
    assert mixing_problem(broken, device=CPU) is None


@pytest.fixture
def falcon(tmp_path: Path, tokenizer: Any) -> Path:
    folder = tmp_path / "falcon"
    build("falcon", device="cpu", vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize(
    ("sections", "name"),
    [
        ({"data": {"packing": True}}, "data.packing"),
        ({"performance": {"padding_free": True}}, "performance.padding_free"),
    ],
)
def test_joined_rows_that_would_see_each_other_are_refused_before_the_first_step(
    make_config: Callable[..., Any],
    falcon: Path,
    workspace: Path,
    tmp_path: Path,
    sections: dict[str, Any],
    name: str,
) -> None:
    with pytest.raises(ConfigError, match=f"{name}=true does not work with Falcon") as raised:
        run(make_config(model=str(falcon), **sections), tmp_path / "refused", workspace)
    assert f"set {name}=false" in raised.value.remedy
    assert "group_by_length=true" in raised.value.remedy
    events = run(make_config(**sections, training={"max_steps": 1}), tmp_path / "llama", workspace)
    start, *_ = of(events, "start")
    assert isinstance(start, StartEvent)
    assert "rows do not attend to each other" in start.verified["packing"]
    (first,) = [one for one in of(events, "phase") if one.name == "first_step" and one.detail]
    assert first.detail == "optimizer states float32"
