"""Details of one cluster, and the table of several, as commands print them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import facts, plain, state, table
from llmops_kernel.cli.fitting_table import FittingTable
from llmops_kernel.views.format import byte_size, seconds

if TYPE_CHECKING:
    from llmops_kernel.services.types import ClusterInfo


def details(info: ClusterInfo) -> object:
    """Return all that is known about a cluster, as names and values."""
    age = seconds(None if info.created_s is None else time.time() - info.created_s)
    starts = info.state == "starting"
    return facts(
        {
            "cluster": f"[bold]{plain(info.name)}[/] ({plain(info.provider)})",
            "state": state(info.state),
            "message": "" if info.waiting else plain(info.message),
            "try": "" if info.waiting else plain(info.remedy),
            **_waits(info),
            "namespace": plain(namespace(info)),
            "created by": plain(info.created_by),
            "chosen because": plain(info.chosen),
            "queue": plain(info.queue or ""),
            "image": plain(info.image or ""),
            "workers": plain(workers(info)),
            "idle guard": plain(guard(info)),
            "up for": "" if info.is_gone or starts else age,
            "starting for": age if starts else "",
            "created": f"{age} ago" if info.is_gone and info.created_s is not None else "",
            "nodes": number(info.num_nodes),
            "CPUs": used(info.cpus_used, info.num_cpus),
            "GPUs": used(info.gpus_used, info.num_gpus),
            "running jobs": plain("\n".join([number(info.jobs_running), *(info.running or ())])),
            "idle for": "" if info.idle_s is None else seconds(info.idle_s),
            "fork server": plain(_fork_server(info)),
            "kept models": plain(_cached_models(info)),
            "cold starts": plain(_cold_starts(info)),
            "Ray": plain(info.ray_version or ""),
            "engines": plain(_engines(info)),
            "dashboard": plain(info.dashboard_url or ""),
            "runs in Grafana": plain(info.runs_url or ""),
        }
    )


def outcome(info: ClusterInfo) -> str:
    """Return what became of a cluster that was told to stop."""
    if info.head_runs:
        return "has no workers any more, and its head keeps running"
    return {"stopping": "is being stopped", "stopped": "is stopped"}.get(
        info.state, f"is {info.state}{f': {info.message}' if info.message else ''}"
    )


def _waits(info: ClusterInfo) -> dict[str, str]:
    """Return each reason for waiting, with its remedy on the next line."""
    lines = []
    for reason in info.waiting:
        lines.append(plain(reason.message))
        if reason.remedy:
            lines.append(f"  [bold]Try:[/] {plain(reason.remedy)}")
    return {"waits for": "\n".join(lines)}


def namespace(info: ClusterInfo) -> str:
    """Return `gcp-us/ml-training`; empty for a local cluster."""
    adopted = " (not created by llmops)" if info.is_adopted else ""
    return f"{info.context}/{info.namespace}{adopted}" if info.context else ""


def workers(info: ClusterInfo) -> str:
    """Return `3 of 4 ready (h100 3 of 4)`."""
    if info.workers_wanted is None:
        return ""
    groups = ", ".join(
        f"{group.name} {group.pods if group.ready is None else group.ready} of {group.pods}"
        for group in info.groups
    )
    by_group = f" ({groups})" if len(info.groups) > 1 else ""
    return f"{info.workers_ready or 0} of {info.workers_wanted} ready{by_group}"


def guard(info: ClusterInfo) -> str:
    """Return what the idle guard will do, and when."""
    return ", ".join(
        due(
            kept_until_s=info.kept_until_s,
            suspends_at_s=info.suspends_at_s,
            ends_at_s=info.ends_at_s,
        )
    )


def due(
    *, kept_until_s: float | None, suspends_at_s: float | None, ends_at_s: float | None
) -> list[str]:
    """Return one phrase for each time that an idle guard uses."""
    now_s, parts = time.time(), []
    if kept_until_s is not None:
        parts.append(f"kept for {seconds(kept_until_s - now_s)} more")
    if suspends_at_s is not None:
        parts.append(f"suspends in {seconds(max(0.0, suspends_at_s - now_s))} unless used")
    if ends_at_s is not None:
        parts.append(f"ends in {seconds(max(0.0, ends_at_s - now_s))}")
    return parts


def warm_word(text: str) -> str:
    """Return `warm`, `starting`, `off` or `cold`; `llmops status` shows the reason."""
    return text.partition(" ")[0].rstrip(":") or "–"


def _fork_server(info: ClusterInfo) -> str:
    parts = [info.warm]
    if info.warm_modules is not None:
        parts.append(f"{info.warm_modules} modules loaded")
    if info.warm_forked is not None:
        parts.append(f"{info.warm_forked} processes forked")
    if info.warm_missing:
        parts.append(f"could not load {', '.join(info.warm_missing)}")
    return ", ".join(filter(None, parts))


def _cached_models(info: ClusterInfo) -> str:
    """Return a line for each model: `SmolLM2-135M-Instruct, float32, 513 MiB, used 2 min ago`."""
    return "\n".join(
        f"{model.model}, {model.dtype}, {byte_size(model.num_bytes)},"
        f" used {seconds(time.time() - model.used_s)} ago"
        for model in info.warm_kept
    )


def _engines(info: ClusterInfo) -> str:
    """Return a line for each model that is loaded; a dash where the cluster did not answer."""
    from llmops_kernel.services.scoring.standing import engine_line

    if info.engines is None:
        return "–" if info.is_ready else ""
    return "\n".join(map(engine_line, info.engines))


def _cold_starts(info: ClusterInfo) -> str:
    if not info.warm_cold_starts:
        return ""
    return f"{info.warm_cold_starts} since the cluster's start, the last: {info.warm_cold_reason}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def used(used: float | None, total: float | None) -> str:
    """Return `0.5 of 2`; only the total while the use is unknown."""
    if total is None:
        return "–"
    return f"{total:g}" if used is None else f"{used:g} of {total:g}"


# --- The table of `llmops ls`: columns in which some cluster has a value ---


_ALWAYS = ("name", "provider", "state", "nodes", "CPUs", "GPUs", "jobs", "warm", "dashboard")
_RIGHT = ("workers", "nodes", "CPUs", "GPUs", "jobs")
_OPTIONAL = ("warm", "nodes", "provider", "dashboard", "jobs", "CPUs")
"""Left out, in this order, where the terminal is too narrow; `llmops status` shows them."""
_NOTHING = "–"


def cluster_table(infos: Sequence[ClusterInfo]) -> FittingTable:
    """Return one line a cluster."""
    rows = [_cluster_row(info) for info in infos]
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


def _cluster_row(info: ClusterInfo) -> dict[str, str]:
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
