"""Models that return vectors, labels and numbers, against the libraries that read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import ModelError
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, Job, load_engine
from llmops_kernel.score.setup import base_apart, engine_choice, job_of, model_returns
from llmops_kernel.store.record import RunSpec
from tests.score.engines.test_transformers import answers_of

TEXTS = ["dish 3", "a longer dish with rice, beans and lime", "soup", "leek " * 30]
CHAT = [{"role": "user", "content": "soup?"}, {"role": "assistant", "content": "yes"}]
PREFIXES = {"query": "find: ", "document": "dish: "}
LENGTH = 12


def sentences(
    folder: Path, base: Path, pooling: str = "lasttoken", *, length: int = LENGTH
) -> Path:
    """Write a model of sentence-transformers around a model of Transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(
        str(base), max_seq_length=length, model_kwargs={"dtype": torch.float32}
    )
    pool = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
    more = [] if pooling == "cls" else [modules.Normalize()]
    parts = [transformer, pool, *more]
    SentenceTransformer(modules=parts, device="cpu", prompts=dict(PREFIXES)).save(str(folder))
    return folder


def as_texts(folder: Path) -> Path:
    """Let sentence-transformers read texts as they are, as before its version 5.4."""
    file = folder / "sentence_bert_config.json"
    config = json.loads(file.read_text())
    del config["modality_config"]["message"]
    file.write_text(json.dumps(config))
    return folder


def adapter_of(folder: Path, task_type: str, **options: Any) -> Any:
    """Write an adapter with random weights on the tiny model; return the model with it."""
    from peft import LoraConfig, get_peft_model

    name = {"SEQ_CLS": "AutoModelForSequenceClassification"}.get(task_type, "AutoModel")
    kind = getattr(transformers, name)
    torch.manual_seed(3)
    base = kind.from_pretrained(prepare("tiny-llama"), dtype=torch.float32, **options)
    config = LoraConfig(
        task_type=task_type, r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    model = get_peft_model(base, config)
    model.save_pretrained(folder)
    if options:
        (folder / "head.json").write_text(json.dumps(options))
    return model.eval()


def config_of(model: Path | str, *, adapter: Any = "", **values: Any) -> ScoreConfig:
    return ScoreConfig.model_validate(
        {
            "model": {"id": str(model), "adapter": str(adapter), "dtype": "float32"},
            "input": "rows.jsonl",
            "prompt": "{text}",
            **values,
            "engine": {"batch_size": 3, "type": "transformers", **values.get("engine", {})},
        }
    )


def chosen(config: ScoreConfig) -> tuple[EngineSpec, Job]:
    """Return what the driver of a scoring chooses, on a cluster that has vLLM."""
    spec = RunSpec(run_id="r", attempt=1, config={}, run_root="", submitted_s=0.0)
    config = base_apart(spec, config)
    adapter = config.model.adapter
    returned = model_returns(spec, config, adapter)
    choice = engine_choice(
        spec, config, returned=returned, num_gpus=0, num_nodes=1, score_python="/some/python"
    )
    return choice.deployment.spec, job_of(config, adapter=adapter, returned=returned)


def scored(model: Path | str, texts: list[Any], **values: Any) -> list[Answer]:
    """Return the answers as a scoring gets them: the driver's choices, then the engine."""
    spec, job = chosen(config_of(model, **values))
    engine = load_engine(replace(spec, max_lora_rank=8))
    try:
        return answers_of(engine, job, texts)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("pooling", "side"), [("lasttoken", "query"), ("mean", "document"), ("cls", "none")]
)
def test_vectors_are_those_of_sentence_transformers(
    tiny_llama: Path, tmp_path: Path, pooling: str, side: str
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = sentences(tmp_path / "model", tiny_llama, pooling)
    with pytest.raises(ModelError, match="chat template around each text"):
        scored(folder, TEXTS, task="embed")
    theirs = SentenceTransformer(str(as_texts(folder)), device="cpu")
    answers = scored(folder, TEXTS, task={"type": "embed", "side": side})
    expected = theirs.encode(TEXTS, prompt=PREFIXES.get(side, ""))
    found = torch.tensor([answer.embedding for answer in answers])
    assert torch.allclose(found, torch.from_numpy(expected), atol=1e-5)
    cut = [len(PREFIXES.get(side, "") + text) > LENGTH for text in TEXTS]
    assert [answer.finish == "length" for answer in answers] == cut


def test_vectors_of_an_adapter_apart_and_in_model_id(tiny_llama: Path, tmp_path: Path) -> None:
    folder = as_texts(sentences(tmp_path / "adapter", tiny_llama))
    (folder / "model.safetensors").unlink()
    model = adapter_of(folder, "FEATURE_EXTRACTION")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_llama)
    rows = []
    for text in TEXTS:
        ids = tokenizer(PREFIXES["document"] + text).input_ids[:LENGTH]
        with torch.no_grad():
            rows.append(model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1])
    expected = torch.nn.functional.normalize(torch.stack(rows), dim=-1)
    for source in ({"model": tiny_llama, "adapter": folder}, {"model": folder}):
        answers = scored(texts=TEXTS, task="embed", **source)
        found = torch.tensor([answer.embedding for answer in answers])
        assert torch.allclose(found, expected, atol=1e-5)
    with pytest.raises(ModelError, match="adapter that is apart") as raised:
        scored(tiny_llama, TEXTS, adapter=folder, task="embed", engine={"type": "vllm"})
    assert "llmops export" in raised.value.remedy
    assert scored(tiny_llama, TEXTS, adapter=folder, task="embed", engine={"type": "auto"})


HEADS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "labels": (
        {"num_labels": 3, "id2label": {0: "a", 1: "b", 2: "c"}, "pad_token_id": 256},
        [*TEXTS, CHAT],
    ),
    "several": (
        {
            "num_labels": 3,
            "id2label": {0: "a", 1: "b", 2: "c"},
            "problem_type": "multi_label_classification",
            "pad_token_id": 256,
        },
        TEXTS,
    ),
    "number": ({"num_labels": 1, "problem_type": "regression", "pad_token_id": 256}, TEXTS),
    "reward": ({"num_labels": 1, "pad_token_id": 256}, [CHAT, TEXTS[0]]),
}


def logits_of(model: Any, texts: list[Any]) -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(prepare("tiny-llama"))
    rows = []
    for text in texts:
        if not isinstance(text, str):
            text = tokenizer.apply_chat_template(text, tokenize=False)
        with torch.no_grad():
            rows.append(model(torch.tensor([tokenizer(text).input_ids])).logits[0])
    return torch.stack(rows)


@pytest.mark.parametrize("kind", HEADS)
def test_labels_and_numbers_are_those_of_transformers(
    tiny_llama: Path, tmp_path: Path, kind: str
) -> None:
    options, texts = HEADS[kind]
    model = adapter_of(tmp_path / "adapter", "SEQ_CLS", **options)
    logits = logits_of(model, texts)
    merged = model.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    transformers.AutoTokenizer.from_pretrained(tiny_llama).save_pretrained(tmp_path / "merged")
    task = "classify" if "id2label" in options else "value"
    for source in (
        {"model": tiny_llama, "adapter": tmp_path / "adapter"},
        {"model": tmp_path / "merged"},
    ):
        answers = scored(texts=texts, task=task, engine={"type": "auto"}, **source)
        if task == "value":
            assert [one.value for one in answers] == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
            continue
        is_several = kind == "several"
        shares = logits.sigmoid() if is_several else logits.softmax(-1)
        for answer, row in zip(answers, shares.tolist(), strict=True):
            assert answer.scores == pytest.approx(dict(zip("abc", row, strict=True)), abs=1e-5)
            several = [name for name, share in zip("abc", row, strict=True) if share > 0.5]
            best = "abc"[row.index(max(row))]
            assert answer.text == (json.dumps(several) if is_several else best)


def test_a_task_that_the_model_does_not_do_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    adapter_of(tmp_path / "labels", "SEQ_CLS", **HEADS["labels"][0])
    adapter_of(tmp_path / "several", "SEQ_CLS", **HEADS["several"][0])
    adapter_of(tmp_path / "numbers", "SEQ_CLS", num_labels=2, problem_type="regression")
    adapter_of(tmp_path / "vectors", "FEATURE_EXTRACTION")
    choices = {"type": "classify", "choices": ["a", "b"]}
    calibrated = {"task": "classify", "evaluation": {"metrics": ["calibration"]}}
    for adapter, values, message in (
        ("", {"task": "value"}, "writes text"),
        ("labels", {"task": "generate"}, "returns labels"),
        ("labels", {"task": "embed"}, "returns labels"),
        ("labels", {"task": choices}, "returns labels"),
        ("labels", {"task": "classify", "engine": {"type": "vllm"}}, "engine.type is vllm"),
        ("numbers", {"task": "value"}, "returns 2 numbers"),
        ("vectors", {"task": "embed"}, "has no modules.json"),
        ("several", calibrated, "calibration is of one choice"),
    ):
        folder = tmp_path / adapter if adapter else ""
        with pytest.raises(ModelError, match=message) as raised:
            scored(tiny_llama, TEXTS, adapter=folder, **values)
        assert raised.value.remedy
    with pytest.raises(ValueError, match="at least two different answers"):
        scored("tiny-llama", TEXTS, task="classify")
