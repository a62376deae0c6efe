"""A model in a machine's cache, as a status shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class KeptInfo(BaseModel):
    """A loaded model that later runs of this machine map into memory instead of reading it."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    """Name of the model in the config."""
    dtype: str
    """Dtype of the run's config; `tokenizer` if it is only that, in the fork server's memory."""
    num_bytes: int
    """Size of its file; for a tokenizer, an estimate of its memory."""
    used_s: float
    """Unix time at which a run last used it."""
