"""One line about a cluster, as text and as HTML."""

from __future__ import annotations

from html import escape

from llmops_kernel.providers.protocol import ClusterInfo


def describe(info: ClusterInfo, *, with_url: bool = True) -> str:
    """Return one line: `local: ready, 1 node, 2 CPUs, 0 GPUs, 1 job, warm, http://127.0.0.1:8265`."""
    parts = [f"{info.name}: {info.state}"]
    if info.is_ready:
        counts = {"node": info.num_nodes, "CPU": info.num_cpus, "GPU": info.num_gpus}
        counts["job"] = info.jobs_running
        parts += [_counted(noun, count) for noun, count in counts.items() if count is not None]
        if info.warm:
            is_sentence = info.warm.startswith(("warm", "cold"))
            parts.append(info.warm if is_sentence else f"fork server {info.warm}")
    elif info.message:
        parts.append(info.message)
    if info.workers_wanted and info.workers_ready != info.workers_wanted:
        parts.insert(1, f"{info.workers_ready or 0} of {info.workers_wanted} workers")
    if with_url and info.is_ready and info.dashboard_url and info.context is None:
        parts.append(info.dashboard_url)
    return ", ".join(parts)


def describe_html(info: ClusterInfo) -> str:
    # Behind a Kubernetes API server the address wants credentials that no browser has.
    url = info.dashboard_url if info.context is None else None
    link = f', <a href="{escape(url)}" target="_blank">dashboard</a>' if url else ""
    return f"Cluster <b>{escape(describe(info, with_url=False))}</b>{link}"


def _counted(noun: str, count: float) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"
