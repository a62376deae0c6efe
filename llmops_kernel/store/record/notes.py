"""The title, star and note that users add to a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmops_kernel.errors import StoreError
from llmops_kernel.store.files import store_errors, write_whole
from llmops_kernel.store.paths import RunFolder

MAX_TITLE = 200
MAX_NOTE = 100_000


class RunNotes(BaseModel):
    """`notes.json` of a run folder; without that file all is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    title: str = Field("", max_length=MAX_TITLE)
    """Shown instead of the run id."""
    starred: bool = False
    note: str = Field("", max_length=MAX_NOTE)
    """Free text."""


def read_notes(folder: RunFolder) -> RunNotes:
    """Return the notes; a file that cannot be read counts as empty."""
    try:
        return RunNotes.model_validate_json(folder.notes.read_bytes())
    except (OSError, ValidationError):
        return RunNotes()


def write_notes(folder: RunFolder, **changes: str | bool) -> RunNotes:
    """Change some of the notes. Raises StoreError when a text is too long or the disk refuses."""
    with store_errors("write", folder.notes), _locked(folder):
        known = read_notes(folder)
        try:
            notes = RunNotes.model_validate({**known.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            raise StoreError(
                f"Cannot save the notes: {first['loc'][0]}: {first['msg']}",
                remedy=f"a title has at most {MAX_TITLE} characters, a note {MAX_NOTE:,}",
            ) from None
        write_whole(folder.notes, notes.model_dump_json(indent=2).encode())
    return notes


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Two processes that change different notes at once both succeed."""
    fd = os.open(folder.root, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
