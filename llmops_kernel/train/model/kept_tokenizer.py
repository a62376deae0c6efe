"""Use the tokenizer that the fork server has loaded, or have it loaded for the next run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from huggingface_hub import constants
from transformers import TrainerCallback

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.model.kept import folder_of
from llmops_kernel.train.model.tokenizer import load_tokenizer, padded
from llmops_kernel.warm.for_jobs import keep_tokenizer, kept_tokenizer
from llmops_kernel.warm.kept_tokenizers import Wanted
from llmops_kernel.warm.loaded_files import facts_of

KEPT = "tokenizer in memory: loaded by this node's fork server"
_TEMPLATES = "additional_chat_templates"
"""A folder of files that `facts_of` does not look at."""
_WORTH_BYTES = 12 << 20
"""Of memory, which is a file of 1 MB: a smaller one is loaded in 0.03 s."""


@dataclass(frozen=True, kw_only=True)
class KeptTokenizer:
    """The tokenizer of one run, and what the fork server is to keep of it."""

    wanted: Wanted | None
    """None if it is not to be kept."""
    is_writer: bool
    """One worker of a node has it kept."""

    @classmethod
    def of(cls, source: str, config: TrainingConfig, context: WorkerContext) -> KeptTokenizer:
        is_writer = context.local_rank == 0
        return cls(wanted=_wanted(source, config, context), is_writer=is_writer)

    def tokenizer(self, source: str, config: TrainingConfig, say: Callable[[str], object]) -> Any:
        """Return it, with a padding token. Raises `ModelError`."""
        found = kept_tokenizer(self.wanted) if self.wanted else None
        if found is None:
            return load_tokenizer(source, config)
        say(KEPT)
        # It is saved with the model. The fork server asks no hub, whatever the run does.
        found.init_kwargs["local_files_only"] = constants.HF_HUB_OFFLINE
        return padded(found)

    def keep(self) -> None:
        if self.wanted and self.is_writer:
            keep_tokenizer(self.wanted)


class KeepAfterFirstStep(TrainerCallback):
    """Has it loaded while the model trains: before, it would take a core from the run."""

    def __init__(self, kept: KeptTokenizer) -> None:
        self._kept: KeptTokenizer | None = kept

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._kept is not None:
            self._kept.keep()
        self._kept = None


def _wanted(source: str, config: TrainingConfig, context: WorkerContext) -> Wanted | None:
    """Return None if it is not worth it, or where code may change what is loaded."""
    is_plain = not config.model.trust_remote_code and config.hooks.file is None
    folder = folder_of(source, config) if context.keep_bytes and is_plain else None
    if folder is None or (folder / _TEMPLATES).exists():
        return None
    try:
        wanted = Wanted(
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
    return wanted if wanted.num_bytes >= _WORTH_BYTES else None
