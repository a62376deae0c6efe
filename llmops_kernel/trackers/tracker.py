"""What each tracker does: opens the run's run there, takes rows, and is closed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from llmops_kernel.config.models.tracking import TrackingConfig
from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.store.outputs import copy_limit_bytes
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.run_notes import RunNotes, read_notes
from llmops_kernel.trackers.rows import Row, flat


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker gets of a run besides its rows."""

    run_id: str
    name: str
    """The config's, which runs of one purpose share."""
    kind: str
    config: Mapping[str, object]
    folder: Path
    """For files of the trackers' own; on this machine."""
    home: Path | None
    """Folder of all runs' data that outlives the cluster; None where this machine has none."""
    facts: Mapping[str, str]
    """Of the record: user, cluster, code hash, git revision, address of the dashboard."""
    notes: RunNotes

    @property
    def settings(self) -> TrackingConfig:
        return TrackingConfig.model_validate(self.config.get("tracking") or {})

    def project(self, *variables: str) -> str:
        """Return the config's project, else that of the first variable that is set."""
        values = (self.settings.project, *(os.environ.get(name) for name in variables))
        return next((value for value in values if value), self.name)

    @property
    def flat_config(self) -> dict[str, str]:
        return dict(flat(self.config))

    @property
    def text_facts(self) -> dict[str, str]:
        """Return `facts` with those of the run itself, by name."""
        own = {"run_id": self.run_id, "kind": self.kind, "name": self.name}
        return {**own, **{name: text for name, text in self.facts.items() if text}}

    def files_of(self, output: OutputEvent) -> Path | None:
        """Return the output's folder if it is on this machine and small enough to upload."""
        path = Path(output.path)
        if not self.settings.upload or "://" in output.path or not path.is_dir():
            return None
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return path if size <= copy_limit_bytes() else None


def facts_of(record: RunRecord, attempt: Attempt | None) -> dict[str, str]:
    """Return what trackers show of a record, and of the cluster of an attempt."""
    git = record.git
    revision = "" if git is None else git.revision + (" with changes" if git.dirty else "")
    return {
        "user": record.user,
        "cluster": record.cluster,
        "code_hash": record.code_hash,
        "git_revision": revision,
        "dashboard": without_credentials(attempt.dashboard_url) if attempt else "",
        "parent": record.parent or "",
    }


def notes_of(folder: RunFolder | None) -> RunNotes:
    """Return title, tags and note of a run whose folder is on this machine."""
    return RunNotes() if folder is None else read_notes(folder)


@dataclass(frozen=True)
class Link:
    """The run in the tracker."""

    id: str
    url: str = ""
    """Its page; empty where there is none."""
    path: str = ""
    """Where it is instead, such as a folder."""
    rows: int | None = None
    """Rows with a place that the tracker has; None where it cannot be asked for their number."""
    is_new: bool = True


class Tracker(Protocol):
    """One run in one tracker, by that tracker's own client.

    Any exception means that the tracker cannot be reached, and is tried again with a new object.
    """

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        """Make the run there, or go on with it.

        `known` is its id, empty at first; `mark` is what `send` or `close` returned last. `warn`
        journals that a part, such as a file, is left out.
        """

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        """Return a mark when the tracker has the rows, to continue from it; may be empty.

        `first` is the number of the first row with a place, counted from 0. `again`: some of them
        may be there already, and are not to be there twice.
        """

    def close(self, state: str) -> str:
        """End the session; return a mark. `state` of the run's end; empty: it goes on."""


@dataclass(frozen=True)
class Backend:
    """A tracker that this version can report to."""

    tracker: str
    """Dotted name of its class."""
    package: str
    """To install; it is called as the module that the class needs."""


BACKENDS: Final[Mapping[str, Backend]] = {
    "comet_ml": Backend("llmops_kernel.trackers.comet.CometTracker", "comet_ml"),
    "mlflow": Backend("llmops_kernel.trackers.mlflow.MlflowTracker", "mlflow"),
    "tensorboard": Backend("llmops_kernel.trackers.tensorboard.TensorBoardTracker", "tensorboard"),
    "trackio": Backend("llmops_kernel.trackers.trackio.TrackioTracker", "trackio"),
    "wandb": Backend("llmops_kernel.trackers.wandb.WandbTracker", "wandb"),
}


def is_installed(name: str) -> bool:
    """Return whether this Python has the package of a tracker."""
    try:
        return find_spec(BACKENDS[name].package) is not None
    except (ImportError, ValueError):
        return False


def make(name: str) -> Tracker:
    """Return a tracker by name. Raises MissingDependencyError without its package."""
    backend = BACKENDS[name]
    if not is_installed(name):
        raise MissingDependencyError(
            f"The package of {name} is not installed here",
            remedy=f"add it to the cluster's image, or to the run: `packages: [{backend.package}]`",
        )
    module, _, attribute = backend.tracker.rpartition(".")
    tracker: Tracker = getattr(import_module(module), attribute)()
    return tracker


# --- What must not be written anywhere ---


_USER = re.compile(r"(://)[^/\s@]+@")
_QUERY = re.compile(r"([?&][^=&\s]*(?:token|key|secret|password|signature)[^=&\s]*=)[^&\s]+", re.I)
_SECRET = re.compile(r"TOKEN|SECRET|PASS|API_?KEY|ACCESS_?KEY|CREDENTIAL|AUTH", re.I)
_SHORTEST = 6


def without_credentials(text: str) -> str:
    """Return a text without user names, passwords and tokens of the URLs in it."""
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", text))


def redacted(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Return a text also without the values of variables that hold secrets by their names."""
    for name, value in env.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST and not os.path.isabs(value):
            text = text.replace(value, "***")
    return without_credentials(text)
