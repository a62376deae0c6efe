"""`llmops suspend | resume | scale | delete | engines`: change a cluster that exists."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.clusters.commands import AsJson, ClusterName, Force
from llmops_kernel.config.counted import counted

if TYPE_CHECKING:
    from llmops_kernel.services.clusters import Cluster
    from llmops_kernel.services.types import ActionPreview, StopWay


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@command(CLUSTERS, example="llmops suspend local --yes")
def suspend(name: ClusterName = "local", yes: Yes = False, force: Force = False) -> None:
    """Stop a cluster's processes and keep its definition: `resume` starts it again."""
    from llmops_kernel.cli.clusters.details import outcome
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.clusters import find

    cluster = find(name)
    _confirm(cluster.preview("suspend"), yes=yes)
    _stop(cluster, "suspend", force=force)
    stopped = plain(outcome(cluster.info).rstrip("."))
    out().print(f"Cluster {plain(name)} {stopped}. Next: llmops resume {plain(name)}")


@command(CLUSTERS, example="llmops resume local")
def resume(name: ClusterName = "local", yes: Yes = False, force: Force = False) -> None:
    """Start a stopped or dead cluster again as it was defined."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out, plain, progress_on
    from llmops_kernel.services import clusters

    cluster, console = clusters.find(name), out(stderr=True)
    if cluster.info.queue is not None:
        # In a queue without elastic jobs the head of a cluster without workers is replaced.
        _confirm_what_stops(cluster.preview("resume"), yes=yes)
    with console.status(f"Resuming cluster {plain(name)} ...") as line:
        info = clusters.resume(cluster, force=force, progress=progress_on(console, line))
    out().print(details(info))


@command(CLUSTERS, example="llmops scale gcp-h100 --workers h100=4")
def scale(
    name: ClusterName = "local",
    num_cpus: Annotated[int | None, typer.Option(help="CPUs that Ray may use.", min=1)] = None,
    num_gpus: Annotated[int | None, typer.Option(help="GPUs that Ray may use.", min=0)] = None,
    workers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP=NUMBER", help="Replicas of a worker group; may be given several times."
        ),
    ] = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Change a cluster's size. A local cluster is restarted, which stops what runs on it."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out, plain, progress_on
    from llmops_kernel.services import clusters
    from llmops_kernel.services.types import ClusterSize

    numbers = _numbers(workers or [])
    size = ClusterSize(num_cpus=num_cpus, num_gpus=num_gpus, workers=numbers)
    cluster, console = clusters.find(name), out(stderr=True)
    sizes = {"num-cpus": num_cpus, "num-gpus": num_gpus}
    options = [f"--{option} {size}" for option, size in sizes.items() if size is not None]
    options += [f"--workers {group}={size}" for group, size in numbers.items()]
    cluster.provider.check_scale(name, size)
    _confirm(cluster.preview("scale"), yes=yes, options=options)
    with console.status(f"Scaling cluster {plain(name)} ...") as line:
        info = clusters.scale(cluster, size, force=force, progress=progress_on(console, line))
    out().print(details(info))


@command(CLUSTERS, example="llmops delete local --yes")
def delete(name: ClusterName = "local", yes: Yes = False, force: Force = False) -> None:
    """Stop a cluster and delete its definition and logs. Its runs are kept on disk."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.services.clusters import find

    cluster = find(name)
    _confirm(cluster.preview("delete"), yes=yes)
    _stop(cluster, "delete", force=force)
    out().print(f"Cluster {name} is deleted. Its runs are kept: llmops runs")


def _stop(cluster: Cluster, method: StopWay, *, force: bool) -> None:
    """Archive its runs, then stop it. When archiving fails, ask whether to continue."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.errors import HistoryError
    from llmops_kernel.services.clusters import stop

    try:
        stop(cluster, method, force=force)
    except HistoryError as error:
        if not sys.stdin.isatty():
            raise
        out(stderr=True).print(plain(error.message))
        typer.confirm("Their last journal entries and logs will be lost. Continue?", abort=True)
        stop(cluster, method, force=True)


def _numbers(texts: list[str]) -> dict[str, int]:
    """Parse `h100=4` into {"h100": 4}."""
    numbers = {}
    for text in texts:
        group, equals, count = text.partition("=")
        if not equals or not count.strip().isdigit():
            raise typer.BadParameter(f"{text!r} is not GROUP=NUMBER", param_hint="--workers")
        numbers[group.strip()] = int(count)
    return numbers


def _confirm_what_stops(preview: ActionPreview, *, yes: bool) -> None:
    if preview.stops:
        _confirm(preview, yes=yes)


def _confirm(preview: ActionPreview, *, yes: bool, options: Sequence[str] = ()) -> None:
    """Show what the action does, and ask for confirmation when it loses something.

    `options` are those of the command, which the remedy repeats.
    """
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.errors import LLMOpsError

    console = out(stderr=True)
    console.print(plain(preview.summary))
    for title, lines in (("Stops:", preview.stops), ("Keeps:", preview.keeps)):
        for line in lines:
            console.print(f"  {title} {plain(line)}")
    if yes or not preview.needs_confirmation:
        return
    if not sys.stdin.isatty():
        raise LLMOpsError(
            f"Nothing was done: {preview.action} needs confirmation and there is no terminal",
            remedy=" ".join(["llmops", preview.action, preview.cluster, *options, "--yes"]),
        )
    typer.confirm("Continue?", abort=True)


# --- `llmops engines`: the models that stay loaded on a cluster ---


@command(CLUSTERS, example="llmops engines local --stop")
def engines(
    name: ClusterName = "local",
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop idle engines; takes a few seconds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the models that score runs and chats have loaded, or stop the idle ones.

    An engine stays loaded for `engine.keep_s` seconds after its last run, so that the next one
    starts at once. It is also stopped when a training run needs its GPU.
    """
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services.clusters import find
    from llmops_kernel.services.scoring.standing import end_idle, engine_line

    cluster = find(name)
    if stop:
        with out(stderr=True).status("Stopping idle engines ..."):
            result = end_idle(cluster)
        if as_json:
            return print_json({"ended": result.ended, "busy": result.busy})
        busy = f"; {len(result.busy)} busy" if result.busy else ""
        return out().print(f"Stopped {counted(len(result.ended), 'idle engine')}{busy}.")
    loaded = cluster.ready_info().engines
    if as_json:
        return print_json(None if loaded is None else [engine.model_dump() for engine in loaded])
    if loaded is None:
        return out().print("– (the cluster did not answer)")
    for engine in loaded:
        out().print(engine_line(engine), markup=False, highlight=False)
    return None if loaded else out().print(f"No model is loaded on cluster {name}.")
