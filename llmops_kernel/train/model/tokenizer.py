"""Load the tokenizer of a run. Without torch, so that a preview of the data starts fast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.vocabulary import TOO_LARGE
from llmops_kernel.errors import ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.warm.preload import without_collections


def load_tokenizer(source: str, config: TrainingConfig, *, only_local: bool = False) -> Any:
    """A tokenizer that has a padding token. Raises `ModelError`.

    With `only_local` nothing is downloaded: of a hub id only the cache is looked at.
    """
    from transformers import AutoTokenizer

    try:
        # 150,000 merges are as many lists: to look at all of them again and again is half the time.
        with without_collections(freeze=False):
            tokenizer = AutoTokenizer.from_pretrained(
                source,
                revision=config.model.revision,
                trust_remote_code=config.model.trust_remote_code,
                local_files_only=only_local,
            )
    except (OSError, ValueError) as error:
        raise load_error("tokenizer", config, error) from error
    return padded(tokenizer)


def padded(tokenizer: Any) -> Any:
    """Return the tokenizer, with its last token for padding if it has none."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def too_large(tokenizer: Any, vocabulary: int, ids: Iterable[int] = ()) -> ModelError | None:
    """Return the error for tokens that the model has no embedding for; None if there are none.

    Of the tokens for padding and ends, and of `ids`: a tokenizer may well have others that no row
    has, such as those for images. On a GPU such a token ends the process in a device assert.
    """
    special = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id)
    wrong = sorted({one for one in (*special, *ids) if one is not None and one >= vocabulary})
    if not wrong or not vocabulary:
        return None
    words = ", ".join(f"{tokenizer.convert_ids_to_tokens(one)} is {one:,}" for one in wrong[:3])
    return ModelError(
        f"The tokenizer has tokens that the model has no embedding for: {words}, and there are"
        f" {vocabulary:,} embeddings ({len(tokenizer):,} tokens).",
        remedy=TOO_LARGE,
    )


def load_error(what: str, config: TrainingConfig, error: Exception) -> ModelError:
    """What to raise for a tokenizer or model that cannot be loaded."""
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"The {what} of {config.model.id!r} cannot be loaded: {first_line}",
        remedy="use a name of the catalogue"
        f" ({', '.join(catalogue.names())}), a folder with config.json and safetensors, or a hub id"
        " (with HF_TOKEN for private ones, and network on the cluster's nodes)",
    )
