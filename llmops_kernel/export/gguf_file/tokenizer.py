"""The tokenizer of a GGUF file: a byte-level BPE as llama.cpp reads it."""

from __future__ import annotations

import json
from typing import Any

import gguf

from llmops_kernel.errors import ExportError
from llmops_kernel.export.gguf_file.architecture import REMEDY
from llmops_kernel.models.answer_ends import turn_end

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BY_PATTERN = {_QWEN2: "qwen2", _LLAMA3: "llama-bpe"}


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, *, vocab_size: int) -> None:
    """Write tokens, merges, special ids and the chat template. Raises ExportError."""
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = _merges(core)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(core))
    tokens, types = _tokens(tokenizer, vocab_size)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for add, number in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_eot_token_id, _end_of_turn(tokenizer)),  # llama.cpp stops there as well.
    ):
        if number is not None:
            add(int(number))
    ids = tokenizer("a")["input_ids"]
    writer.add_add_bos_token(bool(ids) and ids[0] == tokenizer.bos_token_id)
    writer.add_add_eos_token(bool(ids) and ids[-1] == tokenizer.eos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _end_of_turn(tokenizer: Any) -> int | None:
    """Return the token that ends an answer of the chat template, if it is another than the end."""
    token = turn_end(tokenizer).token
    return None if token == tokenizer.eos_token_id else token


def pre_tokenizer(core: dict[str, Any]) -> str:
    """Return llama.cpp's name of how a text is split before merging.

    Raises ExportError for one that is not known to be the same there: the model would get other
    tokens than it was trained on.
    """
    model, steps = core["model"], _steps(core.get("pre_tokenizer"))
    kinds = [step["type"] for step in steps]
    normalizer = (core.get("normalizer") or {}).get("type")
    found = None
    if model["type"] == "BPE" and not model.get("byte_fallback") and normalizer in (None, "NFC"):
        if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
            found = "gpt-2"
        elif kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
            found = "smollm"
        elif kinds == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
            found = _BY_PATTERN.get(steps[0].get("pattern", {}).get("Regex", ""))
    if any(step.get("add_prefix_space") for step in steps):
        found = None
    if model.get("ignore_merges") and found != "llama-bpe":
        found = None
    if found is None:
        shown = " + ".join(kinds) or "none"
        raise ExportError(
            f"The tokenizer ({model['type']}, split by {shown}) cannot be written as GGUF here.",
            remedy=REMEDY,
        )
    return found


def _steps(found: dict[str, Any] | None) -> list[dict[str, Any]]:
    if found is None:
        return []
    if found["type"] == "Sequence":
        return [step for one in found["pretokenizers"] for step in _steps(one)]
    return [found]


def _merges(core: dict[str, Any]) -> list[str]:
    merges = core["model"].get("merges") or []
    if not merges:
        raise ExportError(
            "The tokenizer has no merges (one token a byte); GGUF cannot express that.",
            remedy="use a model with a byte-pair tokenizer, or export --to merged",
        )
    return [one if isinstance(one, str) else " ".join(one) for one in merges]


def _tokens(tokenizer: Any, vocab_size: int) -> tuple[list[str], list[int]]:
    """Return each token and its type by id; ids that the tokenizer does not use are padding."""
    by_id = {number: token for token, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, types = [], []
    for number in range(vocab_size):
        if number not in by_id:
            tokens.append(f"[PAD{number}]")
            types.append(gguf.TokenType.UNUSED)
        elif number in added:
            one = added[number]
            tokens.append(one.content)
            types.append(gguf.TokenType.CONTROL if one.special else gguf.TokenType.USER_DEFINED)
        else:
            tokens.append(by_id[number])
            types.append(gguf.TokenType.NORMAL)
    return tokens, types
