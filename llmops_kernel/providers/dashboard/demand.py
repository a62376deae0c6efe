"""Work that Ray queues because no node has enough free capacity, from its autoscaler's report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmops_kernel.providers.protocol import Waiting

_SHOWN = 3


def demand_reasons(report: Any) -> tuple[Waiting, ...]:
    """Return what waits for resources.

    `report` is `loadMetricsReport` of `/api/cluster_status`; the result is empty when nothing
    waits.
    """
    if not isinstance(report, dict):
        return ()
    lines = [*_tasks(report.get("resourceDemand")), *_groups(report.get("pgDemand"))]
    if not lines:
        return ()
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return (
        Waiting(
            message=f"Ray has pending resource demands: {', '.join(lines[:_SHOWN])}{more}",
            remedy="wait until running jobs end, add resources with `llmops scale`, or request"
            " less in the config",
            kind="demand",
        ),
    )


def _tasks(entries: Any) -> Iterator[str]:
    """Read entries such as `[{"GPU": 1.0}, 8]`, eight tasks of one GPU each."""
    for shape, count in _counted(entries):
        if reported := _shape(shape):
            yield f"{count} x {{{reported}}}"


def _groups(entries: Any) -> Iterator[str]:
    """Placement groups, as Ray Train asks for its workers."""
    for group, count in _counted(entries):
        bundles = " + ".join(_tasks(group.get("bundles")))
        if bundles:
            yield f"{bundles} at once" if count == 1 else f"{count} times {bundles} at once"


def _counted(entries: Any) -> Iterator[tuple[dict[str, Any], int]]:
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            continue
        shape, count = entry
        if isinstance(shape, dict) and isinstance(count, int) and not isinstance(count, bool):
            yield shape, count


def _shape(resources: dict[str, Any]) -> str:
    return ", ".join(
        f"{value:g} {name}"
        for name, value in resources.items()
        # Resources that Ray adds to bind a task to its placement group mean nothing to users.
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.001
    )
