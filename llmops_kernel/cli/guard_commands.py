"""`llmops cluster guard`, `llmops keep`: who puts an idle cluster to sleep, who stops that."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.cluster_group import SUBCOMMANDS, group

if TYPE_CHECKING:
    from llmops_kernel.jobs.guard import Report

_EXAMPLE = "llmops cluster guard gcp-h100 --once"
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SUBCOMMANDS["guard"] = _EXAMPLE


@group.command(epilog=f"Example: {_EXAMPLE}")
def guard(
    name: Annotated[str, typer.Argument(help="Name of the cluster.")],
    once: Annotated[
        bool, typer.Option("--once", help="Look once, act if it is time, end.")
    ] = False,
    every: Annotated[str, typer.Option(help="Time between two looks: `30s`, `5m`.")] = "30s",
    force: Annotated[
        bool,
        typer.Option("--force", help="Act also when the history of its runs cannot be saved."),
    ] = False,
) -> None:
    """Suspend or delete a cluster when its template's `idle` says so; several guards do no harm.

    Without `--once` it stays until the cluster is suspended or gone, or Ctrl-C. A Jupyter server
    with the extension guards by itself.
    """
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.clusters.kuberay.provider import KubeRayProvider
    from llmops_kernel.jobs.guard import guard_once

    period_s = duration_s(every)
    told = ""
    while True:
        report = guard_once(KubeRayProvider(), name, force=force)
        line = _told(report)
        if line != told:
            out().print(plain(line), soft_wrap=True)
            told = line
        if once or report.is_last:
            if report.trouble:
                raise typer.Exit(1)
            return
        time.sleep(period_s)


@command(CLUSTERS, example="llmops keep gcp-h100 --for 2h")
def keep(
    name: Annotated[str, typer.Argument(help="Name of the cluster.")],
    for_: Annotated[
        str, typer.Option("--for", help="How long from now: `2h`, `30m`, `1d`; `0` takes it back.")
    ] = "2h",
) -> None:
    """Keep every idle guard off a cluster for a while, also at the end of its time to live."""
    from llmops_kernel.cli.cluster_commands import details
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.providers import provider_for

    out().print(details(provider_for(name).keep(name, for_s=duration_s(for_))))


def duration_s(text: str) -> float:
    """`2h`, `1h30m`, `90` (seconds). Raises BadParameter."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]?)", text.strip().lower())
    if not pieces or "".join("".join(p) for p in pieces) != re.sub(r"\s", "", text.lower()):
        raise typer.BadParameter(f"{text!r} is no time: write 2h, 30m, 90s, 1d or 0")
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in pieces)


def _told(report: Report) -> str:
    from llmops_kernel.widgets.format import seconds

    if report.trouble:
        return f"Cluster {report.cluster}: {report.trouble}"
    if report.did:
        return f"Cluster {report.cluster}: {report.did}, as {report.state.why}"
    state, now_s = report.state, time.time()
    parts = [f"Cluster {report.cluster}: nothing to do"]
    if state.why:
        parts.append(state.why)
    if state.kept_until_s is not None:
        parts.append(f"kept for {seconds(state.kept_until_s - now_s)} more")
    if state.suspends_at_s is not None:
        parts.append(f"suspends in {seconds(max(0.0, state.suspends_at_s - now_s))} unless used")
    if state.ends_at_s is not None:
        parts.append(f"ends in {seconds(max(0.0, state.ends_at_s - now_s))}")
    return "; ".join(parts)
