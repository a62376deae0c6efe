"""The registered kinds of run; a kind of a newer version is shown with what all runs have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

from llmops_kernel.config.assist.file_kinds import CLUSTER, Kind
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.errors import SubmissionError
from llmops_kernel.kinds.kind import Column, Program, RunKind, load_attribute
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunStore

_GENERIC = "llmops_kernel.kinds.generic:generic_kind"
_BUILT_IN = {
    "train": "llmops_kernel.kinds.train:TRAIN",
    "script": "llmops_kernel.kinds.script:SCRIPT",
    "score": "llmops_kernel.kinds.score:SCORE",
    "chat": "llmops_kernel.kinds.chat:CHAT",
}
"""Loaded on first use, so that an import costs only what is needed."""
USUAL = "train"
"""The kind of a config that says nothing else: a dict, a text without a name."""
_REGISTERED: dict[str, RunKind] = {}


def register(kind: RunKind) -> RunKind:
    """Add a kind, or replace the one of the same name; returns it."""
    _REGISTERED[kind.name] = kind
    return kind


def unregister(name: str) -> None:
    """Remove a registered kind; a built-in one is loaded again when it is needed."""
    _REGISTERED.pop(name, None)


def kind_named(name: str) -> RunKind:
    """Return the kind; for an unknown name one that shows what all runs have."""
    known = _REGISTERED.get(name)
    if known is not None:
        return known
    if name in _BUILT_IN:
        return register(load_attribute(_BUILT_IN[name]))
    kind: RunKind = load_attribute(_GENERIC)(name)
    return kind


def is_registered(name: str) -> bool:
    return name in _REGISTERED or name in _BUILT_IN


def kinds() -> tuple[RunKind, ...]:
    """All registered kinds, the built-in ones first."""
    names = dict.fromkeys((*_BUILT_IN, *_REGISTERED))
    return tuple(kind_named(name) for name in names)


def new_view(kind: str, events: Iterable[AnyEvent] = ()) -> RunView:
    """Return a view of the kind's class that knows its kind."""
    return kind_named(kind).view(events, kind=kind)


def view_of(store: RunStore, run_id: str) -> RunView:
    """Read a run's journal into a view of its kind."""
    return new_view(store.record(run_id).kind, store.events(run_id))


# --- Which kind a file, a text or a config is; each kind of run brings its kind of config file ---


def file_kinds() -> dict[str, Kind]:
    """Return all kinds of config files by name: those of runs, then cluster templates."""
    runs = [file_kind(kind) for kind in kinds() if kind.config_file]
    return {kind.name: kind for kind in (*runs, CLUSTER)}


def file_kind(kind: RunKind) -> Kind:
    """Return a kind's config files. Raises SubmissionError for a kind that is not known here."""
    if not kind.config_file:
        raise SubmissionError(
            f"This version of llmops-kernel cannot read the config of a {kind.name!r} run",
            remedy="install the version that submitted it: pip install --upgrade llmops-kernel",
        )
    found: Kind = load_attribute(kind.config_file)
    return found


def file_kind_of(path: str | Path) -> Kind | None:
    """Return the kind of a config file by its path; None for any other file."""
    return next((kind for kind in file_kinds().values() if kind.matches(path)), None)


def file_kind_named(name: str) -> Kind:
    """Return a kind of config file. Raises ConfigError for an unknown name."""
    known = file_kinds()
    return known[name] if name in known else _unknown(name, known)


def _unknown(name: str, known: Collection[str]) -> NoReturn:
    hint = did_you_mean(name, known) or f"known: {listed(known)}"
    problem = Problem(path="kind", message="no such kind of config", value=name, suggestion=hint)
    raise config_error([problem], remedy=f"name one of {listed(known)}")


def run_file_kind_named(name: str) -> Kind:
    """Return the config files of a kind of run. Raises ConfigError for an unknown name."""
    known = {kind.name: kind for kind in kinds() if kind.config_file}
    return file_kind(known[name]) if name in known else _unknown(name, known)


def run_kind_of(path: str | Path) -> RunKind:
    """Return the kind of run that a file is submitted as; the usual one for any other file."""
    suffix = Path(path).suffix
    found = (
        kind
        for kind in kinds()
        if suffix in kind.programs or (kind.config_file and file_kind(kind).matches(path))
    )
    return next(found, None) or kind_named(USUAL)


def program_of(path: str | Path) -> Program | None:
    """Return how a file is submitted that is a program; None for a config file."""
    return run_kind_of(path).programs.get(Path(path).suffix)


def run_kind_of_config(config: RunConfig) -> RunKind:
    """Return the kind of run that a config is of. Raises SubmissionError if no kind has it."""
    known = [(kind, file_kind(kind).model) for kind in kinds() if kind.config_file]
    exact = (kind for kind, model in known if type(config) is model)
    near = (kind for kind, model in known if isinstance(config, model))
    found = next(exact, None) or next(near, None)
    if found is None:
        raise SubmissionError(
            f"No kind of run has configs of class {type(config).__name__}",
            remedy=f"submit one of {listed(model.__name__ for _, model in known)}, or a file",
        )
    return found


# --- What every run shows, of any kind: state, phases, progress, log and failures ---


START_PHASES = ("snapshot", "upload", "pending", "runtime_env", "supervisor", "packages", "driver")
START_WORDS = {
    "snapshot": "Packing the workspace",
    "upload": "Uploading code that the cluster does not have yet",
    "pending": "Waiting for Ray to start the job",
    "runtime_env": "Preparing the runtime environment",
    "supervisor": "Starting the job's supervisor",
    "packages": "Installing the run's packages",
    "driver": "Starting the driver",
    "queue": "Waiting for resources",
}
"""Phases from submit to the start of the driver, which all kinds share."""


def generic_kind(name: str) -> RunKind:
    """A kind that this version does not know; its runs can be read, stopped and deleted."""
    return RunKind(
        name=name,
        title=f"{name} run",
        columns=(Column.of_field("done", "done", "count"),),
        phases=START_PHASES,
        words=START_WORDS,
        actions=frozenset({"stop", "delete"}),
    )
