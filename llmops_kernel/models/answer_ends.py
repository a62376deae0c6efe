"""The end of an answer: one rule for labels, evaluations, scorings, chats and exports.

An answer ends with the tokenizer's end token, with any that the model's generation settings list,
and with what the chat template writes after an answer, which is found by rendering a chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

_SETTINGS = "generation_config.json"
_QUESTION, _ANSWER, _NEXT = "QuestionOfUser", "AnswerOfAssistant", "NextOfUser"
"""Texts that no template contains, changes or cuts."""


@dataclass(frozen=True)
class TurnEnd:
    """The end of an answer in a chat template."""

    token: int | None = None
    """The token that ends it; None where there is none, or where it is not one token."""
    text: str = ""
    """Text of the end; without `token`: a text of several tokens, or empty."""
    is_in_next_turn: bool = False
    """True if the template writes it only when another message follows, as GLM's does."""
    is_known: bool = True
    """False where the template refused the chat of the check."""


_turn_ends: WeakKeyDictionary[Any, tuple[Any, TurnEnd]] = WeakKeyDictionary()
"""For each tokenizer: the template that was read, and its end of a turn."""
_stops: WeakKeyDictionary[Any, dict[tuple[str, ...], tuple[int, ...]]] = WeakKeyDictionary()
"""For each tokenizer: stop texts that were read; each request of a scoring asks for them."""

_own_tokens: WeakKeyDictionary[Any, tuple[int, set[int]]] = WeakKeyDictionary()
"""For each tokenizer: its number of tokens, and its special ones."""


def turn_end(tokenizer: Any) -> TurnEnd:
    """Return what the tokenizer's chat template writes after an answer."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return TurnEnd(is_known=False)
    cached = _turn_ends.get(tokenizer)
    if cached is None or cached[0] != template:
        cached = (template, _find_turn_end(tokenizer))
        _turn_ends[tokenizer] = cached
    return cached[1]


def answer_ends(tokenizer: Any, generation_config: Any = None) -> tuple[int, ...]:
    """Return the ids of all tokens that end an answer; the tokenizer's own end token first."""
    listed = getattr(generation_config, "eos_token_id", None)
    several = [listed] if isinstance(listed, int) else list(listed or ())
    ids = [tokenizer.eos_token_id, turn_end(tokenizer).token, *several]
    return tuple(dict.fromkeys(int(token) for token in ids if token is not None))


def stop_tokens(tokenizer: Any, texts: Sequence[str]) -> tuple[int, ...]:
    """Return the tokens of those stop texts that are special tokens.

    An answer's text is without its special tokens, so they could not be found there.
    """
    if not texts:
        return ()
    cached, key = _stops.setdefault(tokenizer, {}), tuple(texts)
    if key not in cached:
        special_ids = own_tokens(tokenizer)
        cut = [_visible(tokenizer, text, special_ids) for text in key]
        cached[key] = tuple(ids[0] for ids in cut if ids and special_ids.issuperset(ids))
    return cached[key]


def stop_options(tokenizer: Any) -> dict[str, Any]:
    """Return arguments of `generate` where a turn ends with a text of several tokens."""
    end = turn_end(tokenizer)
    if end.token is not None or not end.text:
        return {}
    return {"stop_strings": [end.text], "tokenizer": tokenizer}


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens of an answer before the first that ends it."""
    count = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:count])


def set_answer_ends(model: Any, tokenizer: Any) -> None:
    """Let the model's generation settings list what ends an answer; they are saved with it."""
    settings = getattr(_bare(model), "generation_config", None)
    if settings is not None:
        list_ends(settings, tokenizer)


def list_ends(settings: Any, tokenizer: Any) -> None:
    """Let generation settings list what ends an answer."""
    ends, before = answer_ends(tokenizer, settings), settings.eos_token_id
    if not ends or set(ends) == set(before if isinstance(before, list) else [before]):
        return
    settings.eos_token_id = ends[0] if len(ends) == 1 else list(ends)
    if not _can_be_saved(settings) and not settings.do_sample:
        # Some models say how to sample and not that they do. Once changed, such settings are
        # refused when they are saved, and that would be after the training.
        settings.do_sample = True
    if not _can_be_saved(settings):
        settings.eos_token_id, settings.do_sample = before, False


def save_generation_config(model: Any, folder: Path) -> None:
    """Write the generation settings beside an adapter, which is saved without them."""
    settings = getattr(_bare(model), "generation_config", None)
    if settings is not None and not (folder / _SETTINGS).exists() and _can_be_saved(settings):
        settings.save_pretrained(folder)


def _can_be_saved(settings: Any) -> bool:
    try:
        settings.validate(strict=True)
    except ValueError:
        return False
    return True


@contextmanager
def greedy(model: Any, *, ends: Sequence[int], pad: int | None) -> Iterator[None]:
    """Let `generate` write the most probable token each time, until one of `ends`.

    The settings that came with the model are put aside meanwhile: Transformers takes over all that
    a call does not name, such as a penalty on repetition, which changes greedy answers too.
    """
    from transformers import GenerationConfig

    bare = _bare(model)
    own_config = bare.generation_config
    bare.generation_config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        use_cache=True,
        eos_token_id=list(ends) or None,
        pad_token_id=pad,
        bos_token_id=getattr(own_config, "bos_token_id", None),
    )
    try:
        yield
    finally:
        bare.generation_config = own_config


def _bare(model: Any) -> Any:
    """Return the model below an adapter: PEFT hands its settings through from there."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _find_turn_end(tokenizer: Any) -> TurnEnd:
    question = {"role": "user", "content": _QUESTION}
    answer = {"role": "assistant", "content": _ANSWER}
    following = {"role": "user", "content": _NEXT}
    after = _after_answer(tokenizer, [question, answer])
    if after is None:
        return TurnEnd(is_known=False)
    end = _first_own(tokenizer, after)
    if end is not None:
        return end
    if after.strip():
        return TurnEnd(text=after.strip())
    between = _after_answer(tokenizer, [question, answer, following])
    if between is None or _NEXT not in between:
        return TurnEnd()
    end = _first_own(tokenizer, between[: between.index(_NEXT)], is_first=True)
    if end is None or end.token == getattr(tokenizer, "bos_token_id", None):
        return TurnEnd()
    return TurnEnd(end.token, end.text, is_in_next_turn=True)


def _after_answer(tokenizer: Any, chat: list[dict[str, str]]) -> str | None:
    """Return what the template writes after the answer; None where it refuses such a chat."""
    try:
        text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=False)
    except Exception:  # A template is a program of the model's author.
        return None
    _, answer, after = text.rpartition(_ANSWER)
    return after if answer else None


def _first_own(tokenizer: Any, text: str, *, is_first: bool = False) -> TurnEnd | None:
    """Return the first token of the text that is the tokenizer's own, as control tokens are.

    With `is_first` only where nothing but spaces is before it.
    """
    special_ids = own_tokens(tokenizer)
    for token in _visible(tokenizer, text, special_ids):
        if token in special_ids:
            return TurnEnd(token, str(tokenizer.convert_ids_to_tokens(token)))
        if is_first:
            return None
    return None


def _visible(tokenizer: Any, text: str, special_ids: set[int]) -> list[int]:
    """Return the tokens of the text without spaces, which some tokenizers put before it, too."""
    if not text.strip():
        return []
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [
        int(token) for token in ids if token in special_ids or tokenizer.decode([token]).strip()
    ]


def own_tokens(tokenizer: Any) -> set[int]:
    """Return the tokens that stand for one text each: special ones, and others that were added."""
    size = len(tokenizer)
    cached = _own_tokens.get(tokenizer)
    if cached is None or cached[0] != size:
        added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        cached = (size, {*getattr(tokenizer, "all_special_ids", ()), *added})
        _own_tokens[tokenizer] = cached
    return cached[1]
