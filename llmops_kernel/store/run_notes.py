"""What users add to a run: title, star, note, tags and the like; and what agents did to it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from llmops_kernel.errors import StoreError
from llmops_kernel.store.files import store_errors, write_whole
from llmops_kernel.store.paths import RunFolder

MAX_TITLE = 200
MAX_NOTE = 100_000
MAX_TAGS = 50
Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)]
Group = Annotated[str, StringConstraints(strip_whitespace=True, max_length=60)]
ProjectName = Annotated[str, StringConstraints(strip_whitespace=True, max_length=60)]
Colour = Literal["", "blue", "orange", "green", "purple", "teal", "pink", "brown", "grey"]
"""A run's own colour in lists; empty for none."""


class RunNotes(BaseModel):
    """`notes.json` of a run folder; without that file all is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    title: str = Field("", max_length=MAX_TITLE)
    """Shown instead of the run id."""
    starred: bool = False
    note: str = Field("", max_length=MAX_NOTE)
    """Free text."""
    tags: tuple[Tag, ...] = Field((), max_length=MAX_TAGS)
    """Each once, in the order in which they were added."""
    group: Group = ""
    """Runs that belong together, such as the trials of a sweep; a run is in one group at most."""
    project: ProjectName = ""
    """What the run is for; a run is in one project at most."""
    phase: str = ""
    """The phase that it has in its project, for lists; `projects.jsonl` of the home decides."""
    colour: Colour = ""

    @field_validator("tags")
    @classmethod
    def _once(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tags))


NO_NOTES = RunNotes()


class AgentAct(BaseModel):
    """Something that an agent did to a run; a line of `agent.jsonl` of its folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    time_s: float
    agent: str
    action: Literal["submit", "retry", "stop", "note"]
    reason: str


def read_notes(folder: RunFolder) -> RunNotes:
    """Return the notes; a file that cannot be read counts as empty."""
    try:
        return RunNotes.model_validate_json(folder.notes.read_bytes())
    except (OSError, ValidationError):
        return RunNotes()


def write_notes(folder: RunFolder, **changes: str | bool | Sequence[str]) -> RunNotes:
    """Change some of the notes. Raises StoreError when a text is too long or the disk refuses."""
    return _rewrite(folder, lambda _: changes)


def change_tags(
    folder: RunFolder, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> RunNotes:
    """Add and remove tags; those that another process adds meanwhile stay. Raises StoreError."""

    def changed(known: RunNotes) -> Mapping[str, object]:
        gone = {tag.strip() for tag in remove}
        return {"tags": [tag for tag in (*known.tags, *add) if tag.strip() not in gone]}

    return _rewrite(folder, changed)


def _rewrite(folder: RunFolder, change: Callable[[RunNotes], Mapping[str, object]]) -> RunNotes:
    with store_errors("write", folder.notes), _locked(folder):
        known = read_notes(folder)
        try:
            notes = RunNotes.model_validate({**known.model_dump(), **change(known)})
        except ValidationError as error:
            first = error.errors()[0]
            raise StoreError(
                f"Cannot save the notes: {first['loc'][0]}: {first['msg']}",
                remedy=f"a title has at most {MAX_TITLE} characters, a note {MAX_NOTE:,}, a tag,"
                f" a group and a project 60; a run has at most {MAX_TAGS} tags",
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


def add_act(folder: RunFolder, act: AgentAct) -> None:
    """Append what an agent did. Raises StoreError when the disk refuses."""
    with store_errors("write", folder.acts), _locked(folder), folder.acts.open("a") as file:
        file.write(act.model_dump_json() + "\n")


def read_acts(folder: RunFolder) -> tuple[AgentAct, ...]:
    """Return what agents did to the run, in order; a line that cannot be read is left out."""
    try:
        lines = folder.acts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    acts = []
    for line in lines:
        with suppress(ValidationError):
            acts.append(AgentAct.model_validate_json(line))
    return tuple(acts)
