"""What every run shows, of any kind: state, phases, progress, log and failures."""

from __future__ import annotations

from llmops_kernel.kinds.kind import Column, RunKind

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
