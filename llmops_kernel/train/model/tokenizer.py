"""Load the tokenizer of a run. Without torch, so that a preview of the data starts fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from huggingface_hub import constants
from transformers import TrainerCallback

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.model_folder import TOO_LARGE
from llmops_kernel.errors import ModelError
from llmops_kernel.models import catalogue
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.model.kept import folder_of
from llmops_kernel.warm.for_jobs import cache_tokenizer, cached_tokenizer
from llmops_kernel.warm.loaded_files import facts_of
from llmops_kernel.warm.preload import without_collections
from llmops_kernel.warm.tokenizer_cache import TokenizerRequest


def load_tokenizer(source: str, config: TrainingConfig, *, only_local: bool = False) -> Any:
    """Return a tokenizer that has a padding token. Raises `ModelError`.

    With `only_local` nothing is downloaded: for a hub id only the cache is searched.
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
    wrong = sorted(
        {token for token in (*special, *ids) if token is not None and token >= vocabulary}
    )
    if not wrong or not vocabulary:
        return None
    words = ", ".join(
        f"{tokenizer.convert_ids_to_tokens(token)} is {token:,}" for token in wrong[:3]
    )
    return ModelError(
        f"The tokenizer has tokens that the model has no embedding for: {words}, and there are"
        f" {vocabulary:,} embeddings ({len(tokenizer):,} tokens).",
        remedy=TOO_LARGE,
    )


def load_error(part: str, config: TrainingConfig, error: Exception) -> ModelError:
    """Return the error for a tokenizer or model that cannot be loaded."""
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"The {part} of {config.model.id!r} cannot be loaded: {first_line}",
        remedy="use a name of the catalogue"
        f" ({', '.join(catalogue.names())}), a folder with config.json and safetensors, or a hub id"
        " (with HF_TOKEN for private ones, and network on the cluster's nodes)",
    )


# --- Tokenizers kept by the fork server ---


KEPT = "tokenizer in memory: loaded by this node's fork server"
_TEMPLATES = "additional_chat_templates"
"""A folder of files that `facts_of` does not look at."""
_WORTH_BYTES = 12 << 20
"""Memory from which it is kept, as of a file of 1 MB: a smaller one is loaded in 0.03 s."""


@dataclass(frozen=True, kw_only=True)
class KeptTokenizer:
    """The tokenizer of one run, and what the fork server is to keep of it."""

    request: TokenizerRequest | None
    """None if it is not to be kept."""
    is_writer: bool
    """True for the one worker of a node that has it kept."""

    @classmethod
    def of(cls, source: str, config: TrainingConfig, context: WorkerContext) -> KeptTokenizer:
        is_writer = context.local_rank == 0
        return cls(request=_request(source, config, context), is_writer=is_writer)

    def tokenizer(self, source: str, config: TrainingConfig, say: Callable[[str], object]) -> Any:
        """Return it, with a padding token. Raises `ModelError`."""
        cached = cached_tokenizer(self.request) if self.request else None
        if cached is None:
            return load_tokenizer(source, config)
        say(KEPT)
        # It is saved with the model. The fork server asks no hub, whatever the run does.
        cached.init_kwargs["local_files_only"] = constants.HF_HUB_OFFLINE
        return padded(cached)

    def keep(self) -> None:
        if self.request and self.is_writer:
            cache_tokenizer(self.request)


class KeepAfterFirstStep(TrainerCallback):
    """Has it loaded while the model trains: before, it would take a core from the run."""

    def __init__(self, tokenizer: KeptTokenizer) -> None:
        self._tokenizer: KeptTokenizer | None = tokenizer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._tokenizer is not None:
            self._tokenizer.keep()
        self._tokenizer = None


def _request(
    source: str, config: TrainingConfig, context: WorkerContext
) -> TokenizerRequest | None:
    """Return None if it is not worth it, or where code may change what is loaded."""
    is_plain = not config.model.trust_remote_code and config.hooks.file is None
    folder = folder_of(source, config) if context.keep_bytes and is_plain else None
    if folder is None or (folder / _TEMPLATES).exists():
        return None
    try:
        request = TokenizerRequest(
            model=config.model.id,
            source=source,
            revision=config.model.revision,
            folder=str(folder),
            user=context.user,
            limit_bytes=context.keep_bytes,
            facts=facts_of(folder),
        )
    except OSError:  # Whoever reads them reports it.
        return None
    return request if request.num_bytes >= _WORTH_BYTES else None
