"""A kind of run that only tests have: it indexes documents and makes no training steps."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.template import new_file
from llmops_kernel.config.models.section import NAME_PATTERN, RunConfig
from llmops_kernel.config.problems import Problem
from llmops_kernel.kinds.kind import START_PHASES, START_WORDS, Column, Figure, RunKind
from llmops_kernel.kinds.registry import register, unregister
from llmops_kernel.metrics.events import ProgressEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord

DRIVER = Path(__file__).with_name("toy_driver.py")
"""Runs on the cluster. A test copies it into the workspace: this package is not sent there."""


class IndexConfig(RunConfig):
    """Which documents are indexed."""

    name: str = Field(default="index", pattern=NAME_PATTERN)
    """Short name, the first part of each run id."""
    folder: str
    """Folder of the documents, relative to the workspace."""
    suffix: str = ".txt"
    """Documents are the files with this extension."""
    pause_s: float = Field(default=0.0, ge=0)
    """Seconds to wait after each document."""


def check_files(
    config: IndexConfig, workspace: Path, /, *, wrong: Collection[str] = ()
) -> list[Problem]:
    if "folder" in wrong or (workspace / config.folder).is_dir():
        return []
    return [Problem(path="folder", message="no such folder", value=config.folder)]


FILE = Kind(
    name="index",
    title="Index config",
    globs=("*.index.yaml",),
    new_file="new.index.yaml",
    model=IndexConfig,
    template=lambda: new_file("Index config: what is indexed.", IndexConfig(folder="docs")),
    effect=lambda config: [f"Indexes the {config.suffix} files of {config.folder}."],
    check_files=check_files,
    files={"folder": ()},
)


class IndexView(RunView):
    """What the kind adds to the view of any run."""

    @property
    def documents_per_second(self) -> float | None:
        reported = self._of(ProgressEvent)
        return reported[-1].values.get("documents_per_second") if reported else None


def _value(name: str):
    return lambda event: event.values.get(name)


def describe(record: RunRecord) -> str:
    return f"index of {record.config['folder']}"


TOY = RunKind(
    name="index",
    title="Index of documents",
    entrypoint=f"python {DRIVER.name}",
    config_file="tests.kinds.toy:FILE",
    view=IndexView,
    figures=(
        Figure(
            key="documents_per_second",
            label="documents/s",
            unit="per_second",
            better="higher",
            hint="all actors together",
            value=lambda view: view.documents_per_second,
            listed=True,
        ),
    ),
    columns=(
        Column(name="done", label="document", unit="count", value=lambda event: event.done),
        Column(
            name="documents_per_second",
            label="documents/s",
            unit="per_second",
            value=_value("documents_per_second"),
        ),
        Column(name="misses", label="misses", unit="number", value=_value("misses")),
    ),
    curve="misses",
    phases=(*START_PHASES, "open_index"),
    words={**START_WORDS, "open_index": "Opening the index"},
    actions=frozenset({"stop", "compare", "delete"}),
    describe=describe,
)


def write_workspace(folder: Path, *, documents: int = 3) -> Path:
    """Write documents, the driver and a config; return the config's path."""
    (folder / "docs").mkdir(parents=True)
    for number in range(1, documents + 1):
        (folder / "docs" / f"{number}.txt").write_text("word " * number)
    shutil.copy(DRIVER, folder)
    path = folder / "small.index.yaml"
    path.write_text("name: small\nfolder: docs\n")
    return path


@contextmanager
def registered() -> Iterator[None]:
    """All that another package does to bring the kind."""
    register(TOY)
    try:
        yield
    finally:
        unregister(TOY.name)
