"""`llmops suspend | resume | scale | delete`: what is done to a cluster that is known."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.cluster_commands import ClusterName, Force, details, progress_on

if TYPE_CHECKING:
    from llmops_kernel.clusters.provider import ActionPreview, ClusterAction, ClusterProvider
    from llmops_kernel.jobs.history import Way

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(CLUSTERS, example="llmops suspend local --yes")
def suspend(name: ClusterName = "local", yes: Yes = False, force: Force = False) -> None:
    """Stop a cluster's processes and keep its definition: `resume` starts it again."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.providers import provider_for

    provider = provider_for(name)
    _agree(provider.preview(name, _action("suspend")), yes=yes)
    _put_away(provider, name, "suspend", force=force)
    out().print(f"Cluster {name} is stopped. Next: llmops resume {name}")


@command(CLUSTERS, example="llmops resume local")
def resume(name: ClusterName = "local", yes: Yes = False) -> None:
    """Start a stopped or dead cluster again as it was defined. Stops nothing, so never asks."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.clusters.providers import provider_for

    provider = provider_for(name)
    console = out(stderr=True)
    with console.status(f"Resuming cluster {plain(name)} ...") as line:
        info = provider.resume(name, progress=progress_on(console, line))
    out().print(details(info))


@command(CLUSTERS, example="llmops scale gcp-h100 --workers h100=4")
def scale(
    name: ClusterName = "local",
    num_cpus: Annotated[int | None, typer.Option(help="CPUs that Ray may give.", min=1)] = None,
    num_gpus: Annotated[int | None, typer.Option(help="GPUs that Ray may give.", min=0)] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=NUMBER", help="Replicas of a worker group; may be given several times."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Give a cluster other numbers. A local one is restarted, which stops what runs on it."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.clusters.providers import provider_for

    numbers = _numbers(workers or [])
    provider = provider_for(name)
    _agree(provider.preview(name, _action("scale")), yes=yes)
    console = out(stderr=True)
    with console.status(f"Scaling cluster {plain(name)} ...") as line:
        info = provider.scale(
            name,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            workers=numbers or None,
            progress=progress_on(console, line),
        )
    out().print(details(info))


@command(CLUSTERS, example="llmops delete local --yes")
def delete(name: ClusterName = "local", yes: Yes = False, force: Force = False) -> None:
    """Stop a cluster and forget it, with its logs. Runs and their journals stay on disk."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.providers import provider_for

    provider = provider_for(name)
    _agree(provider.preview(name, _action("delete")), yes=yes)
    _put_away(provider, name, "delete", force=force)
    out().print(f"Cluster {name} is deleted. Runs stay: llmops runs")


def _put_away(provider: ClusterProvider, name: str, way: Way, *, force: bool) -> None:
    """What its runs told is saved first; asks where that fails and somebody can answer."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.errors import HistoryError
    from llmops_kernel.jobs.history import put_away

    try:
        put_away(provider, name, way, force=force)
    except HistoryError as error:
        if not sys.stdin.isatty():
            raise
        out(stderr=True).print(plain(error.message), soft_wrap=True)
        typer.confirm("What they told last is lost then. Go on?", abort=True)
        put_away(provider, name, way, force=True)


def _numbers(texts: list[str]) -> dict[str, int]:
    """`h100=4` as {"h100": 4}."""
    numbers = {}
    for text in texts:
        group, equals, count = text.partition("=")
        if not equals or not count.strip().isdigit():
            raise typer.BadParameter(f"{text!r} is not GROUP=NUMBER", param_hint="--workers")
        numbers[group.strip()] = int(count)
    return numbers


def _action(name: str) -> ClusterAction:
    from llmops_kernel.clusters.provider import ClusterAction

    return ClusterAction(name)


def _agree(preview: ActionPreview, *, yes: bool) -> None:
    """Show what it does, and ask when something is lost by it."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.errors import LLMOpsError

    console = out(stderr=True)
    console.print(plain(preview.summary))
    for title, lines in (("Stops:", preview.stops), ("Keeps:", preview.keeps)):
        for line in lines:
            console.print(f"  {title} {plain(line)}", soft_wrap=True)
    if yes or not preview.needs_confirmation:
        return
    if not sys.stdin.isatty():
        raise LLMOpsError(
            f"Nothing was done: {preview.action} needs a yes and there is no terminal to ask",
            remedy=f"llmops {preview.action} {preview.cluster} --yes",
        )
    typer.confirm("Go on?", abort=True)
