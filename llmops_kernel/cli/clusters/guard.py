"""`llmops cluster guard`, `llmops keep`: suspend idle clusters, or keep one up."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.clusters.group import SUBCOMMANDS, group
from llmops_kernel.cli.complete import clusters as complete_cluster

if TYPE_CHECKING:
    from llmops_kernel.services.types import GuardReport

_EXAMPLE = "llmops cluster guard gcp-h100 --once"
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SUBCOMMANDS["guard"] = _EXAMPLE


@group.command(epilog=f"Example: {_EXAMPLE}")
def guard(
    name: Annotated[
        str, typer.Argument(help="Name of the cluster.", autocompletion=complete_cluster)
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Check once, act if it is due, exit.")
    ] = False,
    every: Annotated[str, typer.Option(help="Time between two checks: `30s`, `5m`.")] = "30s",
    force: Annotated[
        bool,
        typer.Option("--force", help="Act even when the history of its runs cannot be archived."),
    ] = False,
) -> None:
    """Suspend or delete a cluster according to the `idle` policy of its template.

    Without `--once` it keeps checking until the cluster is suspended or deleted, or Ctrl-C.
    Several guards can run at the same time. A Jupyter server with the extension does the same in
    the background for clusters that you created, and for those that you name here without `--once`.
    A guard acts only when your store has the journals of all runs on the cluster.
    """
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.guard import guard_once, watch

    period_s, last_line = duration_s(every), ""
    if not once:
        watch(name)
    while True:
        report = guard_once(name, force=force)
        line = _sentence(report)
        if line != last_line:
            out().print(plain(line))
            last_line = line
        if once or report.is_last:
            if report.trouble:
                raise typer.Exit(1)
            return
        time.sleep(period_s)


@command(CLUSTERS, example="llmops keep gcp-h100 --for 2h")
def keep(
    name: Annotated[
        str, typer.Argument(help="Name of the cluster.", autocompletion=complete_cluster)
    ],
    for_: Annotated[
        str, typer.Option("--for", help="How long from now: `2h`, `30m`, `1d`; `0` ends it.")
    ] = "2h",
) -> None:
    """Keep idle guards from suspending or deleting a cluster for a while."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out
    from llmops_kernel.services.clusters import find

    info = find(name).provider.keep(name, for_s=duration_s(for_))
    out().print(details(info))


def duration_s(text: str) -> float:
    """Return seconds for `2h`, `1h30m` or `90`. Raises BadParameter."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]?)", text.strip().lower())
    if not pieces or "".join("".join(p) for p in pieces) != re.sub(r"\s", "", text.lower()):
        raise typer.BadParameter(f"{text!r} is not a duration: write 2h, 30m, 90s, 1d or 0")
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in pieces)


def _sentence(report: GuardReport) -> str:
    from llmops_kernel.cli.clusters.details import due

    if report.trouble:
        return f"Cluster {report.cluster}: {report.trouble}"
    if report.did:
        return f"Cluster {report.cluster}: {report.did}, as {report.state.why}"
    state = report.state
    parts = due(
        kept_until_s=state.kept_until_s,
        suspends_at_s=state.suspends_at_s,
        ends_at_s=state.ends_at_s,
    )
    nothing = f"Cluster {report.cluster}: nothing to do"
    return "; ".join([nothing, *([state.why] if state.why else []), *parts])
