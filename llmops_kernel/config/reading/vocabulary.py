"""Whether the tokens that a model folder's tokenizer needs have an embedding; without libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

TOO_LARGE: Final = (
    "use the tokenizer that the model was trained with, or give the model more embeddings once:"
    " `model.resize_token_embeddings(len(tokenizer))`, and save both into a new folder"
)
_ENDS = ("pad_token", "eos_token", "bos_token")


def tokens_without_embedding(folder: Path) -> str:
    """Return what is wrong with the tokens that every row may have; empty: nothing is.

    Those that pad and end a row, and those that the chat template writes. Others, such as the ones
    of images, need no embedding as long as no row has them; the workers look at the rows.
    """
    config = _json(folder / "config.json")
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    if not isinstance(size, int):
        return ""
    settings = _json(folder / "tokenizer_config.json")
    template = _template(folder, settings)
    ends = {_content(settings.get(name)) for name in _ENDS}
    wrong = [
        f"{content} is {number:,}"
        for content, number in _added(folder)
        if number >= size and (content in ends or content in template)
    ]
    if not wrong:
        return ""
    return (
        "the tokenizer has tokens that the model has no embedding for:"
        f" {', '.join(wrong[:3])}, and there are {size:,} embeddings"
    )


def _added(folder: Path) -> list[tuple[str, int]]:
    """Return (text, id) of the added tokens: the part of a large file that stands first."""
    try:
        text = (folder / "tokenizer.json").read_text()
        begin = text.index("[", text.index('"added_tokens"'))
        found, _ = json.JSONDecoder().raw_decode(text, begin)
        return [(str(one["content"]), int(one["id"])) for one in found]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _template(folder: Path, settings: dict[str, Any]) -> str:
    try:
        return (folder / "chat_template.jinja").read_text()
    except (OSError, ValueError):
        return str(settings.get("chat_template") or "")


def _content(token: Any) -> str:
    """Return the text of a token, which may be written as an object."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
