"""`llmops up | down | ls | status`: the cluster's life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command

if TYPE_CHECKING:
    from llmops_kernel.clusters.provider import ClusterInfo

ClusterName = Annotated[str, typer.Argument(help="Name of the cluster.", show_default=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@command(CLUSTERS, example="llmops up")
def up(
    template: Annotated[
        str, typer.Argument(help="Name of a cluster template, or path of its YAML file.")
    ] = "local",
) -> None:
    """Start a cluster, or attach when it is already up. It outlives this command."""
    from llmops_kernel.cli.console import out

    console = out()
    began_s = time.monotonic()
    info = bring_up(template)
    took_s = time.monotonic() - began_s
    console.print(details(info))
    console.print(f"Up after {took_s:.1f} s. Next: llmops submit CONFIG.train.yaml --follow")


@command(CLUSTERS, example="llmops down local")
def down(
    name: ClusterName = "local",
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="It is no error when there is no such cluster.")
    ] = False,
) -> None:
    """Stop a cluster: exactly its own processes. Runs and their journals stay on disk."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.providers import provider_for
    from llmops_kernel.errors import ClusterNotFoundError

    try:
        provider_for(name).down(name)
    except ClusterNotFoundError:
        if not missing_ok:
            raise
        out().print(f"There is no cluster {name}.")
        return
    out().print(f"Cluster {name} is down. Runs stay: llmops runs")


@command(CLUSTERS, example="llmops ls --json")
def ls(as_json: AsJson = False) -> None:
    """List all clusters, also dead ones."""
    from llmops_kernel.cli.console import out, print_json, state, table
    from llmops_kernel.clusters.providers import all_clusters

    infos = all_clusters()
    if as_json:
        print_json([info.model_dump(mode="json") for info in infos])
        return
    if not infos:
        out().print("No cluster. Start one: llmops up")
        return
    rows = [
        [
            info.name,
            info.provider,
            state(info.state),
            _number(info.num_nodes),
            _used(info.cpus_used, info.num_cpus),
            _used(info.gpus_used, info.num_gpus),
            _number(info.jobs_running),
            warm_word(info.warm),
            info.dashboard_url or "–",
        ]
        for info in infos
    ]
    names = ["name", "provider", "state", "nodes", "CPUs", "GPUs", "jobs", "warm", "dashboard"]
    out().print(table(names, rows, right=("nodes", "CPUs", "GPUs", "jobs")))


@command(CLUSTERS, example="llmops status local --json")
def status(name: ClusterName = "local", as_json: AsJson = False) -> None:
    """Tell all about one cluster. Exit code 1 unless it is ready."""
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.clusters.providers import find_cluster

    info = find_cluster(name)
    if as_json:
        print_json(info.model_dump(mode="json"))
    else:
        console = out()
        console.print(details(info))
        if info.log_tail:
            console.print("\nLast lines of the head's log:", style="bold")
            console.print(plain(info.log_tail), soft_wrap=True)
    if not info.is_ready:
        raise typer.Exit(1)


def bring_up(template: str) -> ClusterInfo:
    """Start or attach, with what happens on one moving line."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.clusters.providers import provider_for
    from llmops_kernel.config.cluster import find_template, load_cluster_template

    loaded, path = load_cluster_template(template), find_template(template)
    with out(stderr=True).status(f"Bringing up cluster {plain(loaded.name)} ...") as line:
        return provider_for(loaded).up(
            loaded,
            template_path=path.resolve() if path else None,
            progress=lambda text: line.update(plain(text)),
        )


def details(info: ClusterInfo) -> object:
    from llmops_kernel.cli.console import facts, plain, state
    from llmops_kernel.widgets.format import seconds

    age_s = None if info.created_s is None else time.time() - info.created_s
    return facts(
        {
            "cluster": f"[bold]{plain(info.name)}[/] ({plain(info.provider)})",
            "state": state(info.state),
            "message": plain(info.message),
            "try": plain(info.remedy),
            "up for": seconds(age_s),
            "nodes": _number(info.num_nodes),
            "CPUs": _used(info.cpus_used, info.num_cpus),
            "GPUs": _used(info.gpus_used, info.num_gpus),
            "running jobs": _number(info.jobs_running),
            "idle for": "" if info.idle_s is None else seconds(info.idle_s),
            "fork server": plain(_fork_server(info)),
            "cold starts": plain(_cold_starts(info)),
            "Ray": plain(info.ray_version or ""),
            "dashboard": plain(info.dashboard_url or ""),
        }
    )


def warm_word(text: str) -> str:
    """`warm`, `starting`, `off` or `cold`; why is for `llmops status`."""
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


def _cold_starts(info: ClusterInfo) -> str:
    if not info.warm_cold_starts:
        return ""
    return f"{info.warm_cold_starts} since the cluster's start, the last: {info.warm_cold_reason}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _used(used: float | None, total: float | None) -> str:
    """`0.5 of 2`; only the total while the use is not known."""
    if total is None:
        return "–"
    return f"{total:g}" if used is None else f"{used:g} of {total:g}"
