"""Where an adapter's base model is looked for, and files of an adapter that cannot be loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import ModelError
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.models.source import tokenizer_of
from llmops_kernel.store.preview_job import PreviewJob
from llmops_kernel.train.data.check import checked
from llmops_kernel.train.data.preview.work import Preview
from llmops_kernel.train.model.origin import (
    Origin,
    continue_adapter,
    merge_adapter,
    merged_below,
    origin,
)

Config = Callable[..., Any]
METHOD = {"type": "lora", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}


def model(*, hidden: int = 32) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=hidden,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model

    made = tmp_path_factory.mktemp("adapter") / "adapter"
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(model(), settings).save_pretrained(made)
    return made


def cut(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(b"cut off")


def pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    torch.save({"weights": Path("x")}, folder / "adapter_model.bin")


@pytest.mark.parametrize(
    ("spoil", "hidden", "says"),
    [
        (lambda _: None, 48, "cannot be loaded: .* size mismatch"),
        (cut, 32, "cannot be loaded: "),
        (pickled, 32, "loading it would run code"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_files_that_cannot_be_loaded_are_no_traceback(
    saved: Path,
    tmp_path: Path,
    make_config: Config,
    spoil: Callable[[Path], None],
    hidden: int,
    says: str,
) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "adapter"))
    spoil(folder)
    config = make_config(model=str(folder), method=METHOD)
    with pytest.raises(ModelError, match=says) as caught:
        continue_adapter(model(hidden=hidden), config, folder)
    assert caught.value.remedy
    with pytest.raises(ModelError, match=says):
        merge_adapter(model(hidden=hidden), folder)


def test_an_adapter_that_was_continued_is_no_base_model(
    saved: Path, tmp_path: Path, make_config: Config
) -> None:
    """The config beside the second one names the first, by a path that looks like a hub id."""
    first = Path(shutil.copytree(saved, tmp_path / "adapters" / "first"))
    second = Path(shutil.copytree(saved, tmp_path / "adapters" / "second"))
    (second / "config.train.yaml").write_text("model: {id: adapters/first}\n")
    for folder in (first, second):
        settings = json.loads((folder / "adapter_config.json").read_text())
        settings |= {"base_model_name_or_path": "someone/llama", "revision": "v2"}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
    config = make_config(model=str(second), method=METHOD)
    found = origin(str(second), config, roots=(tmp_path,), cache=None)
    assert (found.weights, found.config.model.revision) == ("someone/llama", "v2")


def test_check_and_preview_take_the_tokenizer_of_the_base_model(
    saved: Path, workspace: Path, make_config: Config
) -> None:
    """PEFT saves none beside an adapter. Both said that the folder had no tokenizer."""
    folder = Path(shutil.copytree(saved, workspace / "adapter"))
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "tiny-llama"
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    config = make_config(model="adapter", method=METHOD)
    source, of_base = tokenizer_of(config, roots=(workspace,), cache=None)
    assert (Path(source) / "tokenizer_config.json").exists()
    assert of_base.model.id == "tiny-llama"
    job = PreviewJob.model_validate(
        {"config": config.model_dump(mode="json"), "workspace": str(workspace)}
    )
    assert [one.message for one in checked(job).findings] == []
    assert Preview(job).all().train.num_rows


@pytest.mark.filterwarnings("ignore")
def test_a_merged_base_is_written_by_whichever_rank_holds_the_lock(
    tmp_path: Path, make_config: Config
) -> None:
    """Transformers writes nothing on other ranks than 0, without a word."""
    import torch.distributed as dist
    from peft import LoraConfig, PeftModel, get_peft_model
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoModelForCausalLM

    weights, adapter = prepare("tiny-llama"), tmp_path / "adapter"
    base = AutoModelForCausalLM.from_pretrained(str(weights))
    settings = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(base, settings).save_pretrained(adapter)
    config = make_config(model=str(adapter), method=METHOD)
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        merged = merged_below(Origin(str(weights), config, adapter), tmp_path / "base")
    finally:
        dist.destroy_process_group()
    assert merged.is_merged
    whole = AutoModelForCausalLM.from_pretrained(merged.weights)
    apart = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(str(weights)), str(adapter)
    )
    ids = torch.arange(12)[None]
    with torch.no_grad():
        torch.testing.assert_close(whole(ids).logits, apart(ids).logits, atol=1e-4, rtol=1e-4)
