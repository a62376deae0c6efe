"""A model in a machine's cache, as a status shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class KeptInfo(BaseModel):
    """A loaded model that later runs of this machine map into memory instead of reading it."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    """As the config names it."""
    dtype: str
    """Of the run's config; `tokenizer` if it is only that, in the fork server's memory."""
    num_bytes: int
    """Of its file; of a tokenizer, an estimate of its memory."""
    used_s: float
    """Unix time at which a run last used it."""
