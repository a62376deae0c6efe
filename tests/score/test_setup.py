"""What is refused before an engine is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import DataError, ModelError
from llmops_kernel.score.engines.protocol import EngineSpec
from llmops_kernel.score.setup import check_adapter_base, open_table
from llmops_kernel.store.record import RunSpec

HOOKS = """
import json
def score_row(prediction, reference, row):
    return {"items": len(json.loads(prediction))}
"""


def opened(folder: Path, rows: list[Any], **evaluation: Any) -> tuple[str, ...]:
    """Return the names of the metrics that the output has columns for."""
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "hooks.py").write_text(HOOKS)
    config = {
        "model": "tiny-llama",
        "input": str(source),
        "prompt": {"template": "{text}", "reference": "tags"},
        "evaluation": evaluation,
        "hooks": str(folder / "hooks.py"),
    }
    spec = RunSpec(run_id="r", attempt=1, config=config, run_root="", submitted_s=0.0)
    return open_table(spec, ScoreConfig.model_validate(config)).columns.metrics


def test_a_hook_that_needs_an_answer_has_its_column(tmp_path: Path) -> None:
    rows = [{"text": "soup", "tags": '["vegan"]'}]
    assert opened(tmp_path, rows, metrics=["exact_match"]) == ("exact_match", "items")


def test_a_context_that_no_row_has_is_refused_at_once(tmp_path: Path) -> None:
    rows = [{"text": "soup", "tags": "[]"}] * 3
    with pytest.raises(DataError, match=r"first 3 rows can be measured.*'context'") as error:
        opened(tmp_path, rows, metrics=["grounded"])
    assert "evaluation.grounded.context" in error.value.remedy


def test_some_rows_without_a_context_are_not(tmp_path: Path) -> None:
    rows = [{"text": "a", "tags": "[]"}, {"text": "b", "tags": "[]", "context": "b"}]
    assert "grounded_support" in opened(tmp_path, rows, metrics=["grounded"])


def weights(folder: Path, config: dict[str, Any], name: str, shapes: dict[str, list[int]]) -> str:
    """Write a checkpoint that has shapes and no numbers."""
    folder.mkdir()
    is_adapter = name.startswith("adapter")
    (folder / ("adapter_config.json" if is_adapter else "config.json")).write_text(
        json.dumps(config)
    )
    entries = {key: {"dtype": "F32", "shape": shape} for key, shape in shapes.items()}
    header = json.dumps(entries).encode()
    (folder / name).write_bytes(len(header).to_bytes(8, "little") + header)
    return str(folder)


LORA = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": "other"}
QUERY = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("width", "config", "adapter", "kind", "is_refused"),
    [
        pytest.param(8, {}, LORA, "transformers", False, id="of this base"),
        pytest.param(16, {}, LORA, "vllm", True, id="of a wider one"),
        pytest.param(8, {}, {"peft_type": "IA3"}, "vllm", True, id="no LoRA"),
        pytest.param(16, {"quantization_config": {}}, LORA, "vllm", False, id="packed weights"),
        pytest.param(16, {}, LORA, "mine:Engine", False, id="an engine of the user's"),
    ],
)
def test_an_adapter_of_another_base_is_refused_before_the_first_row(
    tmp_path: Path,
    width: int,
    config: dict[str, Any],
    adapter: dict[str, Any],
    kind: str,
    is_refused: bool,
) -> None:
    base = {f"{QUERY}.weight": [8, 8]}
    model = weights(tmp_path / "model", config, "model.safetensors", base)
    # A head that is tied to the embeddings is not in the checkpoint.
    names = (QUERY, "lm_head")
    lora = {f"base_model.model.{name}.lora_A.weight": [4, width] for name in names}
    folder = weights(tmp_path / "adapter", adapter, "adapter_model.safetensors", lora)
    spec = EngineSpec(type=kind, model=model)
    if is_refused:
        with pytest.raises(ModelError, match="No row can be scored: ") as error:
            check_adapter_base(spec, folder)
        assert "model.adapter" in error.value.remedy
    else:
        check_adapter_base(spec, folder)


def test_files_that_the_driver_does_not_see_are_left_to_the_engine() -> None:
    check_adapter_base(EngineSpec(type="vllm", model="owner/name"), "/nowhere")
    check_adapter_base(EngineSpec(type="vllm", model="/nowhere"), "s3://bucket/adapter")


@pytest.mark.parametrize(
    ("task", "prompt", "match"),
    [
        ({"type": "generate", "top_k": 8}, {"reference": "b"}, "only logprob uses it"),
        ({"type": "logprob", "top_k": 8}, {}, "expected answer, and none is named"),
        ({"type": "logprob", "top_k": 8}, {"reference": "b", "chat": False}, "chat is false"),
    ],
)
def test_the_most_probable_tokens_are_of_an_answer_in_a_chat(
    task: dict[str, Any], prompt: dict[str, Any], match: str
) -> None:
    values: dict[str, Any] = {"model": "m", "input": "x", "prompt": {"template": "{a}", **prompt}}
    with pytest.raises(ValueError, match=match):
        ScoreConfig.model_validate({**values, "task": task})


def test_perplexity_without_a_reference_is_of_the_prompt() -> None:
    values: dict[str, Any] = {"model": "m", "input": "x", "prompt": "{a}", "task": "logprob"}
    values["evaluation"] = {"metrics": ["perplexity"]}
    assert ScoreConfig.model_validate(values).evaluation.metrics == ("perplexity",)
    further = {"evaluation": {"metrics": ["perplexity", "bleu"]}}
    with pytest.raises(ValueError, match="bleu need an expected answer"):
        ScoreConfig.model_validate(values | further)
    other = {"task": "generate", "prompt": {"template": "{a}", "reference": "b"}}
    with pytest.raises(ValueError, match="only the task logprob rates"):
        ScoreConfig.model_validate(values | other)
