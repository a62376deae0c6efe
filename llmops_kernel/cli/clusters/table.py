"""The table of `llmops ls`: columns in which some cluster has a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmops_kernel.cli.clusters.details import namespace, number, used, warm_word
from llmops_kernel.cli.console import plain, state, table
from llmops_kernel.cli.fitting_table import FittingTable

if TYPE_CHECKING:
    from llmops_kernel.services.types import ClusterInfo

_ALWAYS = ("name", "provider", "state", "nodes", "CPUs", "GPUs", "jobs", "warm", "dashboard")
_RIGHT = ("workers", "nodes", "CPUs", "GPUs", "jobs")
_OPTIONAL = ("warm", "nodes", "provider", "dashboard", "jobs", "CPUs")
"""Left out, in this order, where the terminal is too narrow; `llmops status` shows them."""
_NOTHING = "–"


def cluster_table(infos: Sequence[ClusterInfo]) -> FittingTable:
    """Return one line a cluster."""
    rows = [_row(info) for info in infos]
    columns = [
        name for name in rows[0] if name in _ALWAYS or any(_has_value(row[name]) for row in rows)
    ]
    if not any(info.context is None for info in infos):
        columns = [name for name in columns if name != "dashboard"]
    cells = [[row[name] for name in columns] for row in rows]
    right = [name for name in _RIGHT if name in columns]
    return table(columns, cells, right=right, optional=_OPTIONAL)


def reasons(infos: Sequence[ClusterInfo]) -> Iterator[str]:
    """Yield, as markup, why clusters on Kubernetes are not ready, one line each."""
    for info in infos:
        if info.context is not None and info.message:
            yield f"[bold]{plain(info.name)}[/]: {plain(info.message)}"


def _row(info: ClusterInfo) -> dict[str, str]:
    workers = ""
    if info.workers_wanted is not None:
        workers = f"{info.workers_ready or 0} of {info.workers_wanted}"
    return {
        "name": plain(info.name),
        "provider": info.provider,
        "state": state(info.state),
        "namespace": plain(namespace(info)) or _NOTHING,
        "workers": workers or _NOTHING,
        "nodes": number(info.num_nodes),
        "CPUs": used(info.cpus_used, info.num_cpus),
        "GPUs": used(info.gpus_used, info.num_gpus),
        "jobs": number(info.jobs_running),
        "warm": warm_word(info.warm),
        # Behind an API server a browser cannot open it.
        "dashboard": (info.dashboard_url if info.context is None else None) or _NOTHING,
    }


def _has_value(cell: str) -> bool:
    return cell not in ("", _NOTHING)
