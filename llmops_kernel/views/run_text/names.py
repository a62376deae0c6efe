"""What a run is called: an id is never its only name."""

from __future__ import annotations

from llmops_kernel.store.record.record import RunRecord


def name_of(record: RunRecord, *, title: str = "", differs: str = "") -> str:
    """Return a run's title, else what it differs in, else its config's name."""
    return title or differs or record.name or record.run_id


def name_with_id(name: str, run_id: str) -> str:
    """`lr 2e-3 (lora-260901-101500-a1b2)`; an id that begins with the name says both."""
    return run_id if run_id == name or run_id.startswith(f"{name}-") else f"{name} ({run_id})"


def called(record: RunRecord, *, title: str = "") -> str:
    """Return a run's name with its id."""
    return name_with_id(name_of(record, title=title), record.run_id)
