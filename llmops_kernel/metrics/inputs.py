"""What the numbers of a run depend on besides its record: machine, versions, content of files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RunInputs(BaseModel):
    """Facts as the run itself saw them. What nobody could know is missing, or None."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    versions: dict[str, str] = {}
    """Version of Python and of each library that computes, where the workers run."""
    machine: dict[str, str] = {}
    """Of rank 0: `cpu` (its name), `instructions` (the widest that PyTorch uses), `threads`, with
    a GPU `gpu`, `cuda`, `cudnn`, and `deterministic`, whether PyTorch is told to be. Empty of a
    score run on several nodes."""
    data: dict[str, str | None] = {}
    """Path as the config has it -> content hash of the file (SHA-256, 16 hex digits), or the ETag
    of an object. None: it was not read for that, being larger than a GiB or on a hub."""
    model: dict[str, str | None] = {}
    """File of the model, or `revision` of a hub id -> content hash, or commit."""
