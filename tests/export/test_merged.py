"""`--to merged`: weights, tokenizer and a card that is true."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from llmops_kernel.errors import ModelError
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.services.export import card_facts
from llmops_kernel.services.export_source import Problems, find_source
from llmops_kernel.services.runs import Run
from tests.export.conftest import PROMPT, Store, greedy, manifest, read_front


def test_merged_weights_answer_as_base_and_adapter_do(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    run = store.add("adding-1", adapter)
    done = store.export_apart(run, tmp_path / "merged")
    assert done.path == tmp_path / "merged"
    prompts = [PROMPT, "<|user|>hello<|end|><|assistant|>", "what"]
    merged = greedy(done.path, prompts)
    assert merged == greedy(prepare("tiny-llama"), prompts, adapter=adapter)
    assert merged != greedy(prepare("tiny-llama"), prompts)  # The adapter does change something.
    assert any("4 of 4 greedy answers are unchanged" in note for note in done.notes)
    assert done.notes[0] == "Weights: adapter merged into the base, float32."


def test_the_folder_is_complete_and_can_be_read_by_others(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    done = store.export(store.add("adding-1", adapter), tmp_path / "a" / "merged")
    folder = tmp_path / "a" / "merged"
    assert set(done.files) == set(manifest(folder)["files"])
    assert {"config.json", "generation_config.json", "model.safetensors", "README.md"} <= set(
        done.files
    )
    assert AutoTokenizer.from_pretrained(str(folder)).chat_template
    mask = os.umask(0)
    os.umask(mask)
    modes = {stat.S_IMODE((folder / name).stat().st_mode) for name in done.files}
    assert modes == {0o666 & ~mask}
    assert (folder / ".llmopsignore").read_text() == "*\n"
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["merged"]
    assert str(folder) in done.command


@pytest.mark.parametrize(
    ("dtype", "computed_in"),
    [("auto", "bfloat16"), ("auto", "float32"), ("float32", "float32"), ("bfloat16", "bfloat16")],
)
def test_what_auto_was_in_the_run_is_what_its_export_computes_in(
    store: Store, adapter: Path, tmp_path: Path, dtype: str, computed_in: str
) -> None:
    model = {"id": "tiny-llama", "dtype": dtype}
    run = store.add("adding-1", adapter, model=model, computed_in=computed_in)
    made = Run(store.backend, run)
    record, view = made.record, made.view
    problems = Problems()
    source = find_source(record, view, attempts=made.attempts, base=None, problems=problems)
    assert source is not None
    assert (problems.messages, source.compute_dtype) == ([], computed_in)
    said = card_facts(record, view, base="tiny-llama").settings["model.dtype"]
    assert said == (f"{computed_in} (auto)" if dtype == "auto" else dtype)


def test_the_card_names_the_runs_that_the_training_came_from(store: Store, adapter: Path) -> None:
    model = {"id": "/runs/sft-1/output", "run": "sft-1", "step": 40}
    objective = {"type": "dpo", "beta": 0.1, "reference": {"run": "sft-0", "id": "/runs/sft-0"}}
    made = Run(store.backend, store.add("adding-2", adapter, model=model, objective=objective))
    said = card_facts(made.record, made.view, base="tiny-llama").settings
    assert (said["model.run"], said["model.step"]) == ("sft-1", 40)
    assert (said["objective.type"], said["objective.reference"]) == ("dpo", "sft-0")
    assert not [value for value in said.values() if "/runs/" in str(value)]


def test_the_card_says_what_the_run_recorded(store: Store, adapter: Path, tmp_path: Path) -> None:
    done = store.export(store.add("adding-1", adapter), tmp_path / "merged", name="adder")
    card = (tmp_path / "merged" / "README.md").read_text()
    front = read_front(card)
    assert front["base_model"] == "tiny-llama"
    assert front["library_name"] == "transformers"
    assert front["tags"] == ["llmops-kernel", "lora"]
    assert "license" not in front
    assert "# adder" in card
    for line in (
        "| steps | 6 |",
        "| last training loss | 1 |",
        "| method.r | 16 |",
        "| training | `data/train.jsonl` | 64 | feedbeefcafe0123 |",
        "| evaluation | `s3://bucket/eval.parquet` | 8 | – |",
        "| eval_loss | 1.25 |",
        f"| git revision | {'a' * 40}, with changes that were not committed |",
        "| code, content hash | 0123456789abcdef |",
        "| submitted | 2026-09-21",
        "torch 2.13.0, peft 0.21.2",
        "After step 6 on 8 held-out rows",
    ):
        assert line in card, line
    assert "content hashes of data outside the workspace" in card
    assert str(tmp_path) not in card  # No folder of this machine.
    assert done.notes[1] in card


def test_a_run_without_an_evaluation_has_a_card_without_numbers(
    store: Store, full_model: Path, tmp_path: Path
) -> None:
    run = store.add("adding-1", full_model, what="model", data="rows.jsonl")
    journal = store.home / "runs" / run / "journal" / "1-worker-1.jsonl"
    kept = [line for line in journal.read_text().splitlines() if '"kind":"eval"' not in line]
    journal.write_text("\n".join(kept) + "\n")
    store.export(run, tmp_path / "merged", check=0)
    card = (tmp_path / "merged" / "README.md").read_text()
    assert "The run was not evaluated." in card
    assert "an evaluation" in card.splitlines()[-1]


@pytest.mark.filterwarnings("ignore:Model has `tie_word:UserWarning")
@pytest.mark.filterwarnings("ignore:Setting `save_embedding:UserWarning")
@pytest.mark.parametrize("targets", [("lm_head",), ("embed_tokens",), ("lm_head", "embed_tokens")])
def test_an_adapter_of_tied_embeddings_is_merged_into_those_alone(
    store: Store, adapter_of: Callable[..., Path], tmp_path: Path, targets: tuple[str, ...]
) -> None:
    """tiny-llama's output layer is its embedding: merged into one, it changes both."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = adapter_of("tiny-llama", targets=("q_proj", *targets))
    done = store.export(store.add("adding-1", adapter), tmp_path / "merged")
    base = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    trained = PeftModel.from_pretrained(base, str(adapter)).eval()
    again = AutoModelForCausalLM.from_pretrained(str(done.path)).eval()
    ids = torch.arange(40, 60)[None]
    with torch.no_grad():
        assert torch.allclose(again(ids).logits, trained(ids).logits, rtol=1e-4, atol=1e-3)
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False


def test_a_full_fine_tune_is_exported_with_its_cache_on(
    store: Store, full_model: Path, tmp_path: Path
) -> None:
    done = store.export(store.add("full-1", full_model, what="model"), tmp_path / "merged")
    assert done.path is not None
    config = json.loads((done.path / "config.json").read_text())
    assert config.get("use_cache", True) is True
    assert done.notes[0] == "Weights: full fine-tune, float32."
    assert greedy(done.path, [PROMPT]) == greedy(full_model, [PROMPT])


def test_weights_are_rounded_on_request_and_the_card_says_so(
    store: Store, adapter_of: Callable[[str], Path], tmp_path: Path
) -> None:
    from safetensors import safe_open

    run = store.add("qwen-1", adapter_of("tiny-qwen2"), model="tiny-qwen2")
    done = store.export(run, tmp_path / "merged", dtype="bfloat16")
    with safe_open(tmp_path / "merged" / "model.safetensors", "pt") as weights:
        assert {str(weights.get_tensor(name).dtype) for name in weights.keys()} == {  # noqa: SIM118
            "torch.bfloat16"
        }
    assert done.notes[0].endswith("bfloat16.")
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_result_at_a_url_is_downloaded(store: Store, adapter: Path, tmp_path: Path) -> None:
    url = f"file://{adapter}"
    run = store.add("adding-1", url, output={"url": url})
    done = store.export(run, tmp_path / "merged")
    assert not any(name.startswith(".result") for name in done.files)
    assert greedy(tmp_path / "merged", [PROMPT]) == greedy(
        prepare("tiny-llama"), [PROMPT], adapter=adapter
    )


def test_an_adapter_of_another_base_is_one_clear_error(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    other = tmp_path / "other"
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 261}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    LlamaForCausalLM(LlamaConfig(**shape, **heads)).save_pretrained(other)
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        store.export(store.add("adding-1", adapter), tmp_path / "merged", base=str(other))
    assert "--base" in caught.value.remedy
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home", "other"]


def test_the_adapter_that_a_script_reported_is_merged(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    """The base is what the adapter's own config names; the card says what is not known."""
    run = store.add("script-1", adapter, what="checkpoint", kind="script")
    store.export(run, tmp_path / "merged")
    assert greedy(tmp_path / "merged", [PROMPT]) == greedy(
        prepare("tiny-llama"), [PROMPT], adapter=adapter
    )
    card = (tmp_path / "merged" / "README.md").read_text()
    assert "The run did not record which data it read." in card
    assert "base_model" not in read_front(card)
