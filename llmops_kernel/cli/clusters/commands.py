"""`llmops up | down | ls | status`: start, stop and list clusters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.complete import templates as complete_template
from llmops_kernel.cli.console import bring_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmops_kernel.services.clusters import Cluster
    from llmops_kernel.services.types import ClusterInfo

ClusterName = Annotated[
    str,
    typer.Argument(help="Name of the cluster.", show_default=True, autocompletion=complete_cluster),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Continue when the history of its runs cannot be archived."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_STATUS_S = 15.0
"""How long `status` waits on a busy machine for why a cluster is not ready."""
_AGAIN_S = 0.1


@command(CLUSTERS, example="llmops up gcp-h100 --no-wait")
def up(
    template: Annotated[
        str,
        typer.Argument(
            help="Name of a cluster template, or path of its YAML file.",
            autocompletion=complete_template,
        ),
    ] = "local",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until it is ready. Without it, a cluster on Kubernetes keeps starting in"
            " the background.",
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Start a cluster, or attach to it when it is already up. It outlives this command."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out, plain, print_json

    console = out()
    began_s = time.monotonic()
    info = bring_up(template, wait=wait)
    took_s = time.monotonic() - began_s
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    console.print(details(info))
    if info.is_ready:
        console.print(f"Up after {took_s:.1f} s. Next: llmops submit CONFIG.train.yaml --follow")
    else:
        console.print(
            f"It keeps starting in the background. Next: llmops status {plain(info.name)}"
        )


@command(CLUSTERS, example="llmops down local")
def down(
    name: ClusterName = "local",
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="Succeed when there is no such cluster.")
    ] = False,
    force: Force = False,
) -> None:
    """Stop a cluster. Other processes are not affected. Its runs are kept on disk."""
    from llmops_kernel.cli.clusters.details import outcome
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.errors import ClusterNotFoundError
    from llmops_kernel.services.clusters import find, stop

    try:
        cluster = find(name)
        stop(cluster, "down", force=force)
    except ClusterNotFoundError:
        if not missing_ok:
            raise
        out().print(f"There is no cluster {name}.")
        return
    shares = cluster.provider.shares_disk
    stopped = "is down" if shares else plain(outcome(cluster.info).rstrip("."))
    out().print(f"Cluster {plain(name)} {stopped}. Its runs are kept: llmops runs")


@command(CLUSTERS, example="llmops ls --json")
def ls(as_json: AsJson = False) -> None:
    """List all clusters, including dead ones.

    Namespaces that do not answer are named on stderr. Exit code 1 if no cluster on Kubernetes can
    be listed for that reason.
    """
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.services.backend import current

    survey = current().survey()
    for error in survey.errors:
        # On stderr: the other clusters are listed all the same.
        out(stderr=True).print(f"[yellow]{plain(str(error))}[/]")
    if as_json:
        print_json([info.model_dump(mode="json") for info in survey.infos])
    elif survey.infos:
        _print_list(survey.infos)
    elif not survey.errors:
        # A context that does not answer may have clusters.
        out().print("No cluster. Start one: llmops up")
    if survey.silent:
        raise typer.Exit(1)


def _print_list(infos: Sequence[ClusterInfo]) -> None:
    from llmops_kernel.cli.clusters.details import cluster_table, reasons
    from llmops_kernel.cli.console import out

    out().print(cluster_table(infos))
    for line in reasons(infos):
        out().print(line)


@command(CLUSTERS, example="llmops status local --json")
def status(name: ClusterName = "local", as_json: AsJson = False) -> None:
    """Show a cluster's status. Exit code 1 unless it is ready."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.services.clusters import find, with_states_of

    info = _info_with_reasons(find(name))
    if info.running:
        info = info.model_copy(update={"running": with_states_of(info.running)})
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


def _info_with_reasons(cluster: Cluster) -> ClusterInfo:
    """Return its info with the reasons of a wait: nobody looks again by himself, as a list does."""
    deadline_s = time.monotonic() + _STATUS_S
    while True:
        info = cluster.info
        if not info.is_unasked or time.monotonic() > deadline_s:
            return info
        time.sleep(_AGAIN_S)
