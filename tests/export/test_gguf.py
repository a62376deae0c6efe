"""`--to gguf`: the file holds the model's own weights and tokens, in llama.cpp's order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ExportError
from tests.export.conftest import PROMPT, Store, greedy

TEXT = ["what is 3 plus 4? it is 7.", "the cat sat on the mat", "seven and four make eleven"] * 8
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"


def small_tokenizer() -> Any:
    """Return a byte-level BPE with some merges: GGUF cannot express one without."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(TEXT, trainer)
    special = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
    core.add_special_tokens([AddedToken(token, special=True) for token in special])
    made = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<|pad|>", eos_token="<|end|>")
    made.chat_template = TEMPLATE
    return made


def save_model(folder: Path, kind: str, **changes: Any) -> Path:
    import torch
    import transformers

    tokenizer = small_tokenizer()
    shape = {
        "vocab_size": 320,  # More than the tokenizer has.
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        **changes,
    }
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = getattr(transformers, f"{kind}Config")(**shape)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith("bias"):  # Zero when new: a lost bias would not be noticed.
                    weight.normal_(std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_run(store: Store, tmp_path: Path) -> Callable[..., tuple[str, Path]]:
    def make(kind: str, **changes: Any) -> tuple[str, Path]:
        folder = save_model(tmp_path / "model", kind, **changes)
        return store.add("full-1", folder, what="model"), folder

    return make


def fields(path: Path) -> dict[str, Any]:
    import gguf

    reader = gguf.GGUFReader(str(path))
    return {name: field.contents() for name, field in reader.fields.items()}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {"tie_word_embeddings": True, "rope_theta": 50_000.0}),
        ("Llama", {"tie_word_embeddings": False}),
        ("Qwen2", {"tie_word_embeddings": True}),
    ],
    ids=["llama-tied", "llama", "qwen2"],
)
def test_the_file_answers_as_the_run_does(
    store: Store,
    make_run: Callable[..., tuple[str, Path]],
    tmp_path: Path,
    kind: str,
    changes: dict[str, Any],
) -> None:
    run, folder = make_run(kind, **changes)
    done = store.export(run, tmp_path / "out", to="gguf", quantization="f32")
    assert done.files == ("README.md", "adding-F32.gguf")
    assert done.notes[1].startswith("Loaded back by Transformers, not by llama.cpp")
    assert done.notes[1] in (tmp_path / "out" / "README.md").read_text()
    assert done.notes[1].endswith("4 of 4 greedy answers are unchanged.")
    assert len(set(greedy(folder, [PROMPT, "the cat"]))) == 2  # The answers do say something.
    assert "-c 512" in done.command or "-c 576" in done.command


def test_tokens_types_and_template_are_written(
    store: Store, make_run: Callable[..., tuple[str, Path]], tmp_path: Path
) -> None:
    run, _ = make_run("Llama")
    store.export(run, tmp_path / "out", to="gguf", check=0)
    found = fields(tmp_path / "out" / "adding-F16.gguf")
    tokenizer = small_tokenizer()
    tokens, types = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    vocabulary = tokenizer.get_vocab()
    assert {token: tokens.index(token) for token in vocabulary} == vocabulary
    assert types[vocabulary["<|end|>"]] == 3  # Control.
    assert types[vocabulary["a"]] == 1
    assert (tokens[319], types[319]) == ("[PAD319]", 5)
    assert found["tokenizer.ggml.pre"] == "gpt-2"
    assert found["tokenizer.ggml.eos_token_id"] == tokenizer.eos_token_id
    assert found["tokenizer.ggml.add_bos_token"] is False
    assert found["tokenizer.chat_template"] == TEMPLATE
    assert found["llama.rope.dimension_count"] == 16
    assert found["general.architecture"] == "llama"


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
def test_smaller_types_are_close_to_the_weights(
    store: Store, make_run: Callable[..., tuple[str, Path]], tmp_path: Path, kind: str
) -> None:
    import gguf
    import numpy as np
    from safetensors import safe_open

    run, folder = make_run("Qwen2")
    store.export(run, tmp_path / "out", to="gguf", quantization=kind, check=0)
    reader = gguf.GGUFReader(str(tmp_path / "out" / f"adding-{kind.upper()}.gguf"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["blk.0.attn_norm.weight"].tensor_type.name == "F32"
    assert tensors["blk.0.attn_q.bias"].tensor_type.name == "F32"
    assert tensors["blk.0.attn_q.weight"].tensor_type.name == kind.upper()
    # 176 columns are no whole blocks of 32.
    whole = kind.upper() if kind != "q8_0" else "F16"
    assert tensors["blk.0.ffn_down.weight"].tensor_type.name == whole
    with safe_open(folder / "model.safetensors", "np") as weights:
        true = weights.get_tensor("model.layers.1.mlp.up_proj.weight")
    found = tensors["blk.1.ffn_up.weight"]
    np.testing.assert_allclose(
        gguf.dequantize(found.data, found.tensor_type), true, atol=0.01 * np.abs(true).max()
    )


def test_a_tokenizer_without_merges_is_refused(store: Store, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no merges") as caught:
        store.export(store.add("adding-1", adapter), tmp_path / "out", to="gguf", check=0)
    assert "--to merged" in caught.value.remedy
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("GPTNeoX", {"intermediate_size": 128}, "gpt_neox model cannot be written"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "Rotary scaling of type linear",
        ),
    ],
)
def test_what_cannot_be_written_names_the_other_tool(
    store: Store,
    make_run: Callable[..., tuple[str, Path]],
    tmp_path: Path,
    kind: str,
    changes: dict[str, Any],
    says: str,
) -> None:
    run, _ = make_run(kind, **changes)
    with pytest.raises(ExportError, match=says) as caught:
        store.export(run, tmp_path / "out", to="gguf", check=0)
    assert "convert_hf_to_gguf.py" in caught.value.remedy


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"type": "ByteLevel", "use_regex": True}], "gpt-2"),
        ([{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}], "smollm"),
        ([{"type": "Whitespace"}], None),
        ([{"type": "ByteLevel", "add_prefix_space": True}], None),
    ],
)
def test_how_a_text_is_split_has_the_name_that_llama_cpp_knows(
    steps: list[dict[str, Any]], expected: str | None
) -> None:
    from llmops_kernel.export.gguf_file import pre_tokenizer

    core = {
        "model": {"type": "BPE"},
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    if expected is None:
        with pytest.raises(ExportError, match="cannot be written as GGUF"):
            pre_tokenizer(core)
    else:
        assert pre_tokenizer(json.loads(json.dumps(core))) == expected
