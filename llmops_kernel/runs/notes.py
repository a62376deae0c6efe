"""What people add to a run afterwards: a title, a star, a note."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmops_kernel.errors import StoreError
from llmops_kernel.runs.files import store_errors, write_whole
from llmops_kernel.runs.paths import RunFolder

MAX_TITLE = 200
MAX_NOTE = 100_000


class RunNotes(BaseModel):
    """`notes.json` of a run folder; without that file all is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    title: str = Field("", max_length=MAX_TITLE)
    """Shown in place of the run id."""
    starred: bool = False
    note: str = Field("", max_length=MAX_NOTE)
    """Free text."""


def read_notes(folder: RunFolder) -> RunNotes:
    """A file that cannot be read counts as empty: notes must not stand in a run's way."""
    try:
        return RunNotes.model_validate_json(folder.notes.read_bytes())
    except (OSError, ValidationError):
        return RunNotes()


def write_notes(folder: RunFolder, **changes: str | bool) -> RunNotes:
    """Change some of them. Raises StoreError when a text is too long or the disk refuses."""
    with store_errors("write", folder.notes), _locked(folder):
        known = read_notes(folder)
        try:
            notes = RunNotes.model_validate({**known.model_dump(), **changes})
        except ValidationError as error:
            told = error.errors()[0]
            raise StoreError(
                f"Cannot note that: {told['loc'][0]}: {told['msg']}",
                remedy=f"a title has at most {MAX_TITLE} characters, a note {MAX_NOTE:,}",
            ) from None
        write_whole(folder.notes, notes.model_dump_json(indent=2).encode())
    return notes


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Two who change different notes at once both keep theirs."""
    fd = os.open(folder.root, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
