"""A written result that is not the model that was trained fails the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import TrainingError
from llmops_kernel.metrics.events import OutputEvent, WarningEvent
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.train.checkpoints import output
from llmops_kernel.train.checkpoints.output import Comparison, Trained
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import load_model
from llmops_kernel.train.model.origin import Origin

pytestmark = pytest.mark.filterwarnings("ignore")
Config = Callable[..., Any]
LORA = {"type": "lora", "r": 4, "target_modules": ["q_proj", "down_proj"]}
CPU = torch.device("cpu")


@dataclass
class Row:
    input_ids: list[int]


@dataclass
class Arguments:
    device: torch.device = CPU


@dataclass
class Accelerator:
    """Accelerate's, without a process group."""

    def unwrap_model(self, model: Any) -> Any:
        return model

    def autocast(self) -> Any:
        return nullcontext()


@dataclass
class Trainer:
    """What a result is written from: a model whose weights a training has moved."""

    model_wrapped: Any
    accelerator: Accelerator
    args: Arguments

    def save_model(self, folder: str) -> None:
        self.model_wrapped.save_pretrained(folder)


@pytest.fixture
def written(tmp_path: Path, tiny_llama: Path, tokenizer: Any, make_config: Config) -> Any:
    """Train a little, and write the result; return (events, trained logits, config)."""

    def made(**sections: Any) -> tuple[list[Any], Trained, Any]:
        config = make_config(**sections)
        torch.manual_seed(5)
        model = load_model(str(tiny_llama), config, Hooks())
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.add_(torch.randn_like(weight) * 0.05)
        trainer = Trainer(model, Accelerator(), Arguments())
        rows = [Row(list(range(10, 40)))]
        what = config.method.saves
        trained = Trained.of(trainer, rows, is_own_model=False, what=what)
        journal = JournalWriter([tmp_path / "journal"], stream="1-worker-1", attempt=1)
        context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path, journal=journal)
        origin = Origin(str(tiny_llama), config)
        output.save(
            trainer,
            tokenizer=tokenizer,
            config=config,
            context=context,
            figures={},
            trained=trained,
            origin=origin,
        )
        journal.close()
        return FolderTail(tmp_path / "journal").read(), trained, config

    return made


def outputs(events: list[Any]) -> list[OutputEvent]:
    return [one for one in events if isinstance(one, OutputEvent)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", [LORA, {**LORA, "use_dora": True}, {"type": "full"}], ids=str)
def test_what_is_written_is_what_was_trained_and_the_journal_says_so(
    written: Any, tmp_path: Path, tiny_llama: Path, method: dict[str, Any], dtype: str
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    merges = method["type"] == "lora"
    events, trained, _ = written(
        method=method,
        model={"id": str(tiny_llama), "dtype": dtype},
        output={"merge_adapter": merges},
    )
    found = outputs(events)
    assert [one.what for one in found] == (["adapter", "merged_model"] if merges else ["model"])
    assert all("compared with what was trained" in one.compared for one in found)
    folder = tmp_path / ("output-merged" if merges else "output")
    again = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = again.eval()(torch.tensor([trained.ids])).logits[0].float()
        assert (logits - trained.logits).norm() < (0.1 if dtype == "bfloat16" else 1e-4) * (
            trained.logits.norm()
        )
        if merges and dtype == "float32":
            base = AutoModelForCausalLM.from_pretrained(tiny_llama)
            apart = PeftModel.from_pretrained(base, tmp_path / "output").eval()
            assert torch.allclose(apart(torch.tensor([trained.ids])).logits[0], trained.logits)


def test_no_file_of_a_result_has_a_folder_of_this_machine(
    written: Any, tmp_path: Path, tiny_llama: Path
) -> None:
    written(method=LORA, model=str(tiny_llama), output={"merge_adapter": True})
    for path in sorted(tmp_path.glob("output*/*")):
        # The config beside the result is the user's own.
        if path.suffix in (".json", ".md", ".jinja"):
            assert str(tiny_llama.parent) not in path.read_text(), path.name
            assert str(tmp_path) not in path.read_text(), path.name
    adapter = json.loads((tmp_path / "output" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "tiny-llama"
    config = json.loads((tmp_path / "output-merged" / "config.json").read_text())
    assert config.get("use_cache", True) is True


@pytest.mark.parametrize("what", ["adapter", "model"])
def test_another_model_fails_the_run_and_is_set_aside(
    written: Any, tmp_path: Path, tiny_llama: Path, what: str
) -> None:
    from safetensors.torch import load_file, save_file

    _, trained, config = written(method=LORA if what == "adapter" else "full")
    folder = tmp_path / "output"
    file = folder / ("adapter_model.safetensors" if what == "adapter" else "model.safetensors")
    weights = load_file(file)
    name = next(name for name in weights if "q_proj" in name)
    save_file({**weights, name: weights[name] + 0.3}, file, metadata={"format": "pt"})
    context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path)
    comparison = Comparison(trained, Origin(str(tiny_llama), config), context, CPU, nullcontext)
    with pytest.raises(TrainingError, match="not the model that was trained: loaded again, its"):
        comparison.check(folder, artifact=what)
    assert not folder.exists()
    assert (tmp_path / "output-rejected" / file.name).exists()


def test_a_result_that_cannot_be_loaded_fails_the_run(
    written: Any, tmp_path: Path, tiny_llama: Path
) -> None:
    _, trained, config = written(method="full")
    weights = tmp_path / "output" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path)
    comparison = Comparison(trained, Origin(str(tiny_llama), config), context, CPU, nullcontext)
    with pytest.raises(TrainingError, match="it cannot be loaded"):
        comparison.check(tmp_path / "output", artifact="model")


def test_what_does_not_fit_twice_is_not_compared_and_said(
    written: Any, tmp_path: Path, tiny_llama: Path
) -> None:
    _, trained, config = written(method="full")
    large = Trained(trained.ids, trained.logits, num_bytes=10**15)
    journal = JournalWriter([tmp_path / "other"], stream="1-worker-1", attempt=1)
    context = WorkerContext(run_id="r", folder=tmp_path, workspace=tmp_path, journal=journal)
    comparison = Comparison(large, Origin(str(tiny_llama), config), context, CPU, nullcontext)
    words = comparison.check(tmp_path / "output", artifact="model")
    journal.close()
    assert "not compared with what was trained: a second copy of its 1,000,000.0 GB" in words
    limited = replace(comparison, trained=trained, memory=lambda: [(1000, 2000)])
    assert "a second copy" in limited.check(
        tmp_path / "output", artifact="model"
    )  # In a container.
    event, _ = FolderTail(tmp_path / "other").read()
    assert isinstance(event, WarningEvent)
    assert words in event.message
