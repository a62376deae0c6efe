"""The registered kinds of run; a kind of a newer version is shown with what all runs have."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.kinds.kind import RunKind, load_attribute
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunStore

_GENERIC = "llmops_kernel.kinds.kind:generic_kind"
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
    """Return all registered kinds, the built-in ones first."""
    names = dict.fromkeys((*_BUILT_IN, *_REGISTERED))
    return tuple(kind_named(name) for name in names)


def new_view(kind: str, events: Iterable[AnyEvent] = ()) -> RunView:
    """Return a view of the kind's class that knows its kind."""
    return kind_named(kind).view(events, kind=kind)


def view_of(store: RunStore, run_id: str) -> RunView:
    """Read a run's journal into a view of its kind."""
    return new_view(store.record(run_id).kind, store.events(run_id))
