"""`llmops up | down | ls | status`: the cluster's life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from llmops_kernel.clusters.provider import ClusterInfo, Progress

ClusterName = Annotated[str, typer.Argument(help="Name of the cluster.", show_default=True)]
Force = Annotated[
    bool, typer.Option("--force", help="Go on when the history of its runs cannot be saved.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@command(CLUSTERS, example="llmops up gcp-h100 --no-wait")
def up(
    template: Annotated[
        str, typer.Argument(help="Name of a cluster template, or path of its YAML file.")
    ] = "local",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until it is ready. Without it, a cluster on Kubernetes is only asked for.",
        ),
    ] = True,
) -> None:
    """Start a cluster, or attach when it is already up. It outlives this command."""
    from llmops_kernel.cli.console import out, plain

    console = out()
    began_s = time.monotonic()
    info = bring_up(template, wait=wait)
    took_s = time.monotonic() - began_s
    console.print(details(info))
    if info.is_ready:
        console.print(f"Up after {took_s:.1f} s. Next: llmops submit CONFIG.train.yaml --follow")
    else:
        console.print(f"It goes on starting by itself. Next: llmops status {plain(info.name)}")


@command(CLUSTERS, example="llmops down local")
def down(
    name: ClusterName = "local",
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="It is no error when there is no such cluster.")
    ] = False,
    force: Force = False,
) -> None:
    """Stop a cluster: exactly its own processes. Runs and their journals stay on disk."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.providers import provider_for
    from llmops_kernel.errors import ClusterNotFoundError
    from llmops_kernel.jobs.history import put_away

    try:
        put_away(provider_for(name), name, "down", force=force)
    except ClusterNotFoundError:
        if not missing_ok:
            raise
        out().print(f"There is no cluster {name}.")
        return
    out().print(f"Cluster {name} is down. Runs stay: llmops runs")


@command(CLUSTERS, example="llmops ls --json")
def ls(as_json: AsJson = False) -> None:
    """List all clusters, also dead ones."""
    from llmops_kernel.cli.cluster_table import cluster_table, reasons
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.clusters.providers import survey

    looked = survey()
    for trouble in looked.troubles:
        # On stderr, and no failure: the other clusters are there all the same.
        out(stderr=True).print(f"[yellow]{plain(str(trouble))}[/]", soft_wrap=True)
    if as_json:
        print_json([info.model_dump(mode="json") for info in looked.infos])
        return
    if not looked.infos:
        # Of a place that does not answer nobody knows whether it has any.
        if not looked.troubles:
            out().print("No cluster. Start one: llmops up")
        return
    out().print(cluster_table(looked.infos))
    for line in reasons(looked.infos):
        out().print(line, soft_wrap=True)


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


def bring_up(template: str, *, wait: bool = True) -> ClusterInfo:
    """Start or attach, with what happens on one moving line; Ctrl-C only stops the waiting."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.clusters.providers import provider_for
    from llmops_kernel.config.cluster import find_template, load_cluster_template

    loaded, path = load_cluster_template(template), find_template(template)
    console = out(stderr=True)
    try:
        with console.status(f"Bringing up cluster {plain(loaded.name)} ...") as line:
            return provider_for(loaded).up(
                loaded,
                template_path=path.resolve() if path else None,
                progress=progress_on(console, line),
                wait=wait,
            )
    except KeyboardInterrupt:
        if loaded.provider != "local":
            console.print(
                f"Not waited for any longer; it goes on starting: llmops status {loaded.name}"
            )
        raise


def progress_on(console: Console, line: Status) -> Progress:
    """On the moving line of a terminal; elsewhere, as in CI, a line for each."""
    from llmops_kernel.cli.console import plain

    def tell(text: str) -> None:
        if console.is_terminal:
            line.update(plain(text))
        else:
            console.print(plain(text), soft_wrap=True)

    return tell


def details(info: ClusterInfo) -> object:
    from llmops_kernel.cli.console import facts, plain, state
    from llmops_kernel.widgets.format import seconds

    age_s = None if info.created_s is None else time.time() - info.created_s
    return facts(
        {
            "cluster": f"[bold]{plain(info.name)}[/] ({plain(info.provider)})",
            "state": state(info.state),
            "message": "" if info.waiting else plain(info.message),
            "try": "" if info.waiting else plain(info.remedy),
            **_waits(info),
            "where": plain(place(info)),
            "queue": plain(info.queue or ""),
            "image": plain(info.image or ""),
            "workers": plain(workers(info)),
            "guard": plain(guard(info)),
            "up for": seconds(age_s),
            "nodes": number(info.num_nodes),
            "CPUs": used(info.cpus_used, info.num_cpus),
            "GPUs": used(info.gpus_used, info.num_gpus),
            "running jobs": number(info.jobs_running),
            "idle for": "" if info.idle_s is None else seconds(info.idle_s),
            "fork server": plain(_fork_server(info)),
            "cold starts": plain(_cold_starts(info)),
            "Ray": plain(info.ray_version or ""),
            "dashboard": plain(info.dashboard_url or ""),
        }
    )


def _waits(info: ClusterInfo) -> dict[str, str]:
    """Each reason with what to do about it below."""
    from llmops_kernel.cli.console import plain

    lines = []
    for reason in info.waiting:
        lines.append(plain(reason.message))
        if reason.remedy:
            lines.append(f"  [bold]Try:[/] {plain(reason.remedy)}")
    return {"waits": "\n".join(lines)}


def place(info: ClusterInfo) -> str:
    """`gcp-us/ml-training`; empty for a local cluster."""
    adopted = " (not made by llmops)" if info.is_adopted else ""
    return f"{info.context}/{info.namespace}{adopted}" if info.context else ""


def workers(info: ClusterInfo) -> str:
    """`3 of 4 ready (h100 3 of 4)`."""
    if info.workers_wanted is None:
        return ""
    groups = ", ".join(
        f"{group.name} {group.replicas if group.ready is None else group.ready} of {group.replicas}"
        for group in info.groups
    )
    told = f" ({groups})" if len(info.groups) > 1 else ""
    return f"{info.workers_ready or 0} of {info.workers_wanted} ready{told}"


def guard(info: ClusterInfo) -> str:
    """What the idle guard will do, and when."""
    from llmops_kernel.widgets.format import seconds

    now_s = time.time()
    parts = []
    if info.kept_until_s is not None:
        parts.append(f"kept for {seconds(info.kept_until_s - now_s)} more")
    if info.suspends_at_s is not None:
        parts.append(f"suspends in {seconds(max(0.0, info.suspends_at_s - now_s))} unless used")
    if info.ends_at_s is not None:
        parts.append(f"ends in {seconds(max(0.0, info.ends_at_s - now_s))}")
    return ", ".join(parts)


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


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def used(used: float | None, total: float | None) -> str:
    """`0.5 of 2`; only the total while the use is not known."""
    if total is None:
        return "–"
    return f"{total:g}" if used is None else f"{used:g} of {total:g}"
