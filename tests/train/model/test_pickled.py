"""Weights in a pickle are read where they are tensors only, and refused with the reason else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llmops_kernel.errors import ModelError
from llmops_kernel.score.engines.protocol import EngineSpec
from llmops_kernel.score.engines.transformers.forward import load
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import load_model
from tests.configs import training_config_from_dict


class MakesFolder:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Any) -> Path:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(
        LlamaConfig(num_attention_heads=2, num_key_value_heads=2, vocab_size=300, **shape)
    )
    model.config.save_pretrained(tmp_path / "model")
    torch.save(model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_tensors_are_read(folder: Path) -> None:
    config = training_config_from_dict({"model": str(folder), "data": "x", "method": "full"})
    read = load_model(str(folder), config, Hooks())
    stored = torch.load(folder / "pytorch_model.bin", weights_only=True)
    assert torch.equal(read.lm_head.weight, stored["lm_head.weight"])


def test_code_is_refused_and_does_not_run(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    torch.save({"lm_head.weight": MakesFolder(made)}, folder / "pytorch_model.bin")
    config = training_config_from_dict({"model": str(folder), "data": "x", "method": "full"})
    with pytest.raises(ModelError, match="a pickle") as training:
        load_model(str(folder), config, Hooks())
    with pytest.raises(ModelError, match="a pickle") as scoring:
        load(EngineSpec(type="transformers", model=str(folder), dtype="float32"))
    for caught in (training, scoring):
        assert str(folder) in caught.value.message
        assert "safetensors" in caught.value.remedy
    assert not made.exists()
