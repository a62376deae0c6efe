"""Results that write no text: merged, read by the field's own libraries, with equal numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ExportError
from llmops_kernel.models.catalogue import prepare
from tests.export.conftest import Store
from tests.train.test_loop import run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

ROWS: dict[str, list[dict[str, Any]]] = {
    "embed": [{"query": f"dish {n}", "positive": f"a dish named {n}"} for n in range(16)],
    "classify": [{"text": f"dish {n}", "label": "abc"[n % 3]} for n in range(16)],
    "reward": [{"prompt": f"is it {n}?", "chosen": f"{n}", "rejected": "no"} for n in range(16)],
}
TEXTS = ["dish 3", "a dish that is longer"]


def trained(objective: str, folder: Path) -> Path:
    """Return the folder of an adapter that a training has written."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[objective]))
    values = {
        "model": "tiny-llama",
        "data": "rows.jsonl",
        "objective": objective,
        "optimizer": {"learning_rate": 0.01},
        "training": {"micro_batch_size": 4, "global_batch_size": 4, "max_steps": 4},
    }
    run(TrainingConfig.model_validate(values), folder / "run", folder)
    return folder / "run" / "output"


def numbers(model: Any, tokenizer: Any) -> torch.Tensor:
    rows = []
    for text in TEXTS:
        with torch.no_grad():
            output = model.eval()(**tokenizer(text, return_tensors="pt"))
        rows.append(output.logits[0] if hasattr(output, "logits") else output[0][0, -1])
    return torch.stack(rows)


@pytest.mark.parametrize("objective", ROWS)
def test_a_merged_folder_gives_the_numbers_of_the_adapter(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    import transformers
    from peft import PeftModel

    monkeypatch.setenv("LLMOPS_PEAK_TFLOPS", "10")
    adapter = trained(objective, tmp_path)
    run_id = store.add("made-1", adapter, objective=objective)
    with pytest.raises(ExportError, match="writes no text"):
        store.export(run_id, tmp_path / "served", to="vllm")
    done = store.export(run_id, tmp_path / "merged")
    assert any("differ by" in note for note in done.notes)
    task = "sentence-similarity" if objective == "embed" else "text-classification"
    assert f"pipeline_tag: {task}\n" in (tmp_path / "merged" / "README.md").read_text()
    name = done.command.split()[3].rstrip(",")
    kind, tokenizer = getattr(transformers, name), transformers.AutoTokenizer
    head = adapter / "head.json"
    options = json.loads(head.read_text()) if head.exists() else {}
    base = kind.from_pretrained(prepare("tiny-llama"), **options)
    expected = numbers(PeftModel.from_pretrained(base, adapter), tokenizer.from_pretrained(adapter))
    merged = kind.from_pretrained(done.path)
    assert torch.allclose(
        numbers(merged, tokenizer.from_pretrained(done.path)), expected, atol=1e-4
    )
    if objective == "embed":
        from sentence_transformers import SentenceTransformer

        sentences = SentenceTransformer(str(done.path), device="cpu").encode(TEXTS)
        vectors = torch.nn.functional.normalize(expected, dim=-1)
        assert torch.allclose(torch.from_numpy(sentences), vectors, atol=1e-4)
    if objective == "classify":
        assert merged.config.id2label == {0: "a", 1: "b", 2: "c"}
