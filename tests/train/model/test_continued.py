"""An adapter's folder as `model`: trained further, or refused; never replaced by a new one."""

from __future__ import annotations

import functools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import ModelError
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.sources import DataSources
from tests.train.conftest import write_rows
from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Config = Callable[..., Any]
METHODS: dict[str, dict[str, Any]] = {
    "default": {"type": "lora"},
    "names": {"type": "lora", "r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"]},
    "tied head": {"type": "lora", "r": 4, "target_modules": ["q_proj", "lm_head"]},
    "dora": {"type": "lora", "r": 4, "use_dora": True, "use_rslora": True},
}
FAST = {"learning_rate": 0.02, "lr_scheduler_type": "constant"}


@pytest.fixture(scope="module")
def adapter(make_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Train an adapter of each method once; return the folder of the result."""

    @functools.cache
    def train(method: str) -> Path:
        folder = tmp_path_factory.mktemp("first")
        config = make_config(method=METHODS[method], optimizer=FAST)
        run(config, folder, write_rows(folder / "workspace"))
        return folder / "output"

    return train


def loss_of_first_batch(model: Any, config: Any, workspace: Path) -> float:
    """Return the mean loss of a token by PyTorch alone."""
    from transformers import AutoTokenizer

    from llmops_kernel.models.catalogue import prepare
    from llmops_kernel.train.data.dataset import load_dataset
    from llmops_kernel.train.hooks import Hooks

    context = WorkerContext(run_id="r", folder=workspace, workspace=workspace)
    tokenizer = AutoTokenizer.from_pretrained(str(prepare("tiny-llama")))
    rows = load_dataset(
        config,
        DataSources(config.data, context.roots),
        tokenizer=tokenizer,
        hooks=Hooks(),
        context=context,
    ).train
    total, count = 0.0, 0
    with torch.no_grad():
        for row in list(rows)[: config.training.global_batch_size]:
            logits = model.eval()(torch.tensor([row.input_ids])).logits[0, :-1]
            wanted = torch.tensor(row.labels[1:])
            kept = wanted != -100
            total += float(
                torch.nn.functional.cross_entropy(logits[kept], wanted[kept]) * kept.sum()
            )
            count += int(kept.sum())
    return total / count


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_the_first_loss_is_that_of_base_and_adapter(
    adapter: Callable[[str], Path],
    make_config: Config,
    workspace: Path,
    tmp_path: Path,
    method: str,
) -> None:
    """It was the loss of the base: the adapter was replaced by a new one, without a word."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from llmops_kernel.models.catalogue import prepare

    folder = adapter(method)
    config = make_config(
        model=str(folder), method=METHODS[method], data={"shuffle": False}, optimizer=FAST
    )
    events = run(config, tmp_path / "second", workspace)
    base = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    bare = loss_of_first_batch(base, config, workspace)
    expected = loss_of_first_batch(PeftModel.from_pretrained(base, folder), config, workspace)
    assert abs(expected - bare) > 0.2
    assert losses(events)[1] == pytest.approx(expected, abs=1e-4)
    (output,) = of(events, "output")
    assert (output.what, output.base) == ("adapter", "tiny-llama")
    saved = json.loads((tmp_path / "second" / "output" / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == "tiny-llama"


def test_a_full_training_begins_with_the_adapter_merged(
    adapter: Callable[[str], Path], make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from llmops_kernel.models.catalogue import prepare

    folder = adapter("default")
    config = make_config(model=str(folder), method="full", data={"shuffle": False})
    events = run(config, tmp_path / "second", workspace)
    base = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    count = base.num_parameters()
    trained = PeftModel.from_pretrained(base, folder)
    expected = loss_of_first_batch(trained, config, workspace)
    assert losses(events)[1] == pytest.approx(expected, abs=1e-4)
    start, *_ = of(events, "start")
    assert start.num_trainable == start.num_params == count
    assert (tmp_path / "second" / "output" / "model.safetensors").exists()


@pytest.mark.parametrize(("method", "strategy"), [("tied head", "ddp"), ("default", "zero3")])
def test_a_new_adapter_is_trained_above_the_merged_one(
    adapter: Callable[[str], Path],
    make_config: Config,
    pairs: Pairs,
    workspace: Path,
    tmp_path: Path,
    method: str,
    strategy: str,
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from llmops_kernel.models.catalogue import prepare

    folder, again = adapter(method), tmp_path / "second"
    config = make_config(
        model={"id": str(folder), "adapter": "merge"},
        method={"type": "lora", "r": 2, "target_modules": ["v_proj"]},
        data={"shuffle": False},
        optimizer=FAST,
        parallelism={"strategy": strategy, "num_workers": 1 if strategy == "ddp" else 2},
    )
    train = run if strategy == "ddp" else pairs.events
    events = train(config, again, workspace)
    base = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    expected = loss_of_first_batch(PeftModel.from_pretrained(base, folder), config, workspace)
    assert losses(events)[1] == pytest.approx(expected, abs=1e-4)
    (output,) = of(events, "output")
    assert (output.what, output.base) == ("adapter", str(again / "base"))
    saved = json.loads((again / "output" / "adapter_config.json").read_text())
    assert (saved["r"], saved["base_model_name_or_path"]) == (2, str(again / "base"))
    # The result with its base is what was trained, and another training goes on from it.
    whole = AutoModelForCausalLM.from_pretrained(again / "base")
    whole = PeftModel.from_pretrained(whole, again / "output")
    third = config.model_copy(
        update={"model": config.model.model_copy(update={"id": str(again / "output")})}
    )
    if strategy == "ddp":
        expected = loss_of_first_batch(whole, config, workspace)
        assert losses(run(third, tmp_path / "third", workspace))[1] == pytest.approx(
            expected, abs=1e-4
        )
        assert not [path for path in again.iterdir() if path.name.startswith(".base-")]


def test_dpo_above_a_merged_adapter_compares_with_it_by_turning_the_new_one_off(
    adapter: Callable[[str], Path], make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"is it {n}?", "chosen": f"{n}", "rejected": "no"} for n in range(16)]
    (workspace / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_config(
        model={"id": str(adapter("default")), "adapter": "merge"},
        objective="dpo",
        method={"type": "lora", "r": 2},
        data={"train": "pairs.jsonl"},
    )
    events = run(config, tmp_path / "second", workspace)
    assert losses(events)[1] == pytest.approx(math.log(2), abs=1e-6)
    assert "reference" not in {event.name for event in of(events, "phase")}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"r": 8}, ["r=8 (it has 4)", "r=4"]),
        ({"lora_alpha": 16}, ["lora_alpha=16 (it has 12)"]),
        ({"use_dora": True}, ["use_dora=true (it has false)"]),
        ({"target_modules": ["q_proj"]}, ["=[q_proj] (it has [down_proj, q_proj])"]),
        (
            {"target_modules": "all-linear"},
            ["other layers", "0.mlp.gate_proj has none"],
        ),
    ],
)
def test_other_settings_are_refused_with_the_values(
    adapter: Callable[[str], Path],
    make_config: Config,
    workspace: Path,
    tmp_path: Path,
    fields: dict[str, Any],
    words: list[str],
) -> None:
    config = make_config(model=str(adapter("names")), method={**METHODS["names"], **fields})
    with pytest.raises(ModelError) as caught:
        run(config, tmp_path / "second", workspace)
    assert all(one in f"{caught.value} {caught.value.remedy}" for one in words)


@pytest.mark.filterwarnings("ignore")
def test_a_file_without_some_of_the_weights_is_refused(
    adapter: Callable[[str], Path], make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    """PEFT trains on with new ones in their place, and warns."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(adapter("names"), tmp_path / "cut"))
    weights = load_file(folder / "adapter_model.safetensors")
    gone = next(iter(weights))
    save_file({k: v for k, v in weights.items() if k != gone}, folder / "adapter_model.safetensors")
    config = make_config(model=str(folder), method=METHODS["names"])
    with pytest.raises(ModelError, match="was not loaded as it was saved"):
        run(config, tmp_path / "second", workspace)


def test_a_base_model_that_is_not_there_is_named(
    adapter: Callable[[str], Path], make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(adapter("names"), tmp_path / "moved"))
    (folder / "config.train.yaml").unlink()
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "llama-of-someone"
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    config = make_config(model=str(folder), method=METHODS["names"])
    with pytest.raises(ModelError, match="base model llama-of-someone, which is not on this node"):
        run(config, tmp_path / "second", workspace)
