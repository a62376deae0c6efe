"""The idle guard: one check of a cluster's policy, and the action when it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmops_kernel.services.backend import Backend, current

if TYPE_CHECKING:
    from llmops_kernel.jobs.guard import Report as GuardReport


def watch(name: str, *, backend: Backend | None = None) -> None:
    """Let guards of this user act on a cluster that somebody else made.

    Raises ClusterNotFoundError, ClusterStateError for a cluster whose provider has no idle
    policies.
    """
    from llmops_kernel.providers.capabilities import guard_of

    guard_of((backend or current()).provider_for(name)).watch(name)


def guard_once(name: str, *, force: bool = False, backend: Backend | None = None) -> GuardReport:
    """Check a cluster's idle policy once; suspend or delete the cluster if it is due.

    Any number of guards can run at the same time. Raises ClusterNotFoundError,
    ClusterStateError for a cluster whose provider has no idle policies.
    """
    from llmops_kernel.jobs import guard

    backend = backend or current()
    provider = backend.provider_for(name)
    return guard.guard_once(provider, name, store=backend.store, force=force)
