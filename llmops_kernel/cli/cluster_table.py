"""The table of `llmops ls`: only columns in which a cluster has something to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmops_kernel.cli.cluster_commands import number, place, used, warm_word
from llmops_kernel.cli.console import plain, state, table

if TYPE_CHECKING:
    from rich.table import Table

    from llmops_kernel.clusters.provider import ClusterInfo

_ALWAYS = ("name", "provider", "state", "nodes", "CPUs", "GPUs", "jobs", "warm", "dashboard")
_RIGHT = ("workers", "nodes", "CPUs", "GPUs", "jobs")
_NOTHING = "–"


def cluster_table(infos: Sequence[ClusterInfo]) -> Table:
    rows = [_row(info) for info in infos]
    # Where all are local, the table is what it always was.
    columns = [name for name in rows[0] if name in _ALWAYS or any(_says(row[name]) for row in rows)]
    if not any(info.context is None for info in infos):
        columns = [name for name in columns if name != "dashboard"]
    cells = [[row[name] for name in columns] for row in rows]
    return table(columns, cells, right=[name for name in _RIGHT if name in columns])


def reasons(infos: Sequence[ClusterInfo]) -> Iterator[str]:
    """Markup: why clusters on Kubernetes are not ready, one line each."""
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
        "where": plain(place(info)) or _NOTHING,
        "workers": workers or _NOTHING,
        "nodes": number(info.num_nodes),
        "CPUs": used(info.cpus_used, info.num_cpus),
        "GPUs": used(info.gpus_used, info.num_gpus),
        "jobs": number(info.jobs_running),
        "warm": warm_word(info.warm),
        # Behind an API server it is no address for a browser.
        "dashboard": (info.dashboard_url if info.context is None else None) or _NOTHING,
    }


def _says(cell: str) -> bool:
    return cell not in ("", _NOTHING)
