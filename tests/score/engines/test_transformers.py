"""The Transformers engine keeps the protocol."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from llmops_kernel.errors import ModelError
from llmops_kernel.hardware.precision import cpu_facts
from llmops_kernel.score.engines.protocol import (
    Answer,
    Engine,
    EngineSpec,
    Job,
    Request,
    load_engine,
)
from llmops_kernel.score.engines.transformers.engine import TransformersEngine
from tests.score.engines import cases, checks

CONTEXT = 512


def spec(model: Path | str, **changes: object) -> EngineSpec:
    wanted = {"batch_size": 4, "dtype": "float32", "max_model_len": CONTEXT, **changes}
    return EngineSpec(type="transformers", model=str(model), **wanted)  # type: ignore[arg-type]


def answers_of(engine: Engine, job: Job, prompts: list[str]) -> list[Answer]:
    for number, prompt in enumerate(prompts):
        engine.add(Request(id=number, prompt=prompt), job)
    found: list[Answer] = []
    while engine.unfinished:
        found += engine.step()
    return sorted(found, key=lambda one: one.id)


def test_the_table_of_cases(
    tiny_llama: Path, random_adapter: Callable[[Path, int], str], tmp_path: Path
) -> None:
    adapters = {
        "one": random_adapter(tiny_llama, 1),
        "two": random_adapter(tiny_llama, 2),
        "missing": str(tmp_path),
        "other": _wider(random_adapter(tiny_llama, 3)),
    }
    checks.check(cases.run(spec(tiny_llama), adapters), context=CONTEXT)


def _wider(folder: str) -> str:
    """Make an adapter be of a model with wider layers."""
    from safetensors.torch import load_file, save_file

    file = Path(folder) / "adapter_model.safetensors"
    weights = {
        name: weight.new_zeros(weight.shape[0], weight.shape[1] * 2)
        for name, weight in load_file(file).items()
    }
    save_file(weights, file)
    return folder


def test_vectors_have_length_one_and_do_not_depend_on_their_batch(tiny_llama: Path) -> None:
    engine = load_engine(spec(tiny_llama, embeds=True))
    job = Job(task="embed")
    together = answers_of(engine, job, ["a", "a much longer text of a dish", "soup"])
    (alone,) = answers_of(engine, job, ["a"])
    for one in together:
        assert one.embedding is not None
        assert math.hypot(*one.embedding) == pytest.approx(1)
    assert together[0].embedding == pytest.approx(alone.embedding, abs=1e-5)


def test_a_batch_answers_like_its_rows_alone(tiny_llama: Path) -> None:
    engine = load_engine(spec(tiny_llama))
    prompts = ["soup", "a much longer text about a soup", "stew of beans", "x", "pie", "rice " * 20]
    for job in (Job(max_tokens=9), Job(max_tokens=9, temperature=0.8, seed=3)):
        together = answers_of(engine, job, prompts)
        for number, prompt in enumerate(prompts):
            engine.add(Request(id=number, prompt=prompt), job)
            while engine.unfinished:
                (alone,) = engine.step() or [None]
            assert alone is not None
            assert alone.text == together[number].text
            assert alone.logprob == pytest.approx(together[number].logprob, abs=1e-2)


def test_the_most_probable_tokens_are_those_of_plain_transformers(tiny_llama: Path) -> None:
    """Also those of the end of the turn, which a student learns to write."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    engine = load_engine(spec(tiny_llama))
    answers = ["no meat", "x", "yes, it is vegan"]
    job, found = Job(task="logprob", top_logprobs=4), {}
    for number, answer in enumerate(answers):
        engine.add(Request(id=number, prompt=cases.chat(f"dish {number}"), target=answer), job)
    while engine.unfinished:
        found |= {one.id: one for one in engine.step()}
    for number, answer in enumerate(answers):
        chat = cases.chat(f"dish {number}")
        before = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        chat.append({"role": "assistant", "content": answer})
        ids = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False)).input_ids
        begin = len(tokenizer(before).input_ids)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0]
        values, tokens = logits[begin - 1 : -1].log_softmax(-1).topk(4)
        one = found[number]
        assert one.prompt_tokens == begin
        assert one.target_tokens == ids[begin:]
        assert tokenizer.decode(one.target_tokens[-1:]) == "<|end|>"
        assert one.top_tokens == tokens.tolist()
        assert torch.tensor(one.top_logprobs) == pytest.approx(values, abs=1e-5)


def test_nan_is_an_error_of_the_row(tiny_llama: Path) -> None:
    from llmops_kernel.score.engines.transformers.engine import TransformersEngine

    engine = TransformersEngine(spec(tiny_llama))
    engine.loaded.model.lm_head.weight[:] = math.nan
    for job in (
        Job(),
        Job(temperature=1.0),
        Job(task="classify", choices=("a", "bc")),
        Job(task="logprob"),
    ):
        (answer,) = answers_of(engine, job, ["some soup"])
        assert answer.finish == "error"
        assert "not a number" in answer.error


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [10**8, 10**6], "data_offsets": [0, 2 * 10**14]}}
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ModelError, match="does not fit") as caught:
        load_engine(spec(tmp_path))
    assert "smaller model" in caught.value.remedy


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_engine(spec(tmp_path))


def test_a_cut_download_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_engine(spec(tmp_path))


def test_an_architecture_that_transformers_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nobody_knows_it"}')
    with pytest.raises(ModelError, match="nobody_knows_it"):
        load_engine(spec(tmp_path))


def test_a_longer_context_than_the_model_has_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(ModelError, match="4,000") as caught:
        load_engine(spec(tiny_llama, max_model_len=4000))
    assert "1024" in caught.value.remedy


def test_an_unknown_engine_is_named(tiny_llama: Path) -> None:
    with pytest.raises(ModelError, match="no engine 'sglang'"):
        load_engine(EngineSpec(type="sglang", model=str(tiny_llama)))


@pytest.mark.parametrize(
    ("isa", "dtype", "why"),
    [
        ("AVX2", "float32", "this CPU has no bfloat16 instructions"),
        ("ALL", "bfloat16", "this CPU has instructions for it"),
    ],
)
def test_auto_is_bfloat16_only_where_the_cpu_has_instructions_for_it(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, isa: str, dtype: str, why: str
) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if isa == "ALL" and not cpu_facts().has_bf16:
        pytest.skip("this CPU has no bfloat16 instructions")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    engine = TransformersEngine(spec(tiny_llama, dtype="auto"))
    assert {str(one.dtype) for one in engine.loaded.model.parameters()} == {f"torch.{dtype}"}
    assert engine.spec.dtype == dtype
    assert engine.precision.summary == f"{dtype} ({why})"


def test_a_dtype_that_is_named_is_taken_as_it_is(tiny_llama: Path) -> None:
    engine = TransformersEngine(spec(tiny_llama, dtype="float16"))
    assert {one.dtype for one in engine.loaded.model.parameters()} == {torch.float16}
    assert engine.precision.summary == ""
