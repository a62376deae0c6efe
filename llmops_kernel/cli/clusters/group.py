"""`llmops cluster render | init | diff | apply | guard | rights | rbac`, `llmops keep`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from llmops_kernel.cli.app import CLUSTERS, EXAMPLES, app, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.complete import templates as complete_template
from llmops_kernel.cli.console import echo

if TYPE_CHECKING:
    from llmops_kernel.services.types import EditEffect, GuardReport, RightState


C = TypeVar("C", bound=Callable[..., Any])
_EXAMPLE = "llmops cluster render kind-cpu"
EXAMPLES["cluster"] = _EXAMPLE
SUBCOMMANDS: dict[str, str] = {}
"""Command of the group -> the example in its help."""

group = typer.Typer(
    no_args_is_help=True,
    help="Cluster templates for Kubernetes: write one, render its manifest, apply changes.",
)
app.add_typer(group, name="cluster", rich_help_panel=CLUSTERS, epilog=f"Example: {_EXAMPLE}")

Template = Annotated[
    str,
    typer.Argument(
        help="Name of a cluster template, or path of its YAML file.",
        autocompletion=complete_template,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class DryRun(StrEnum):
    NONE = "none"
    SERVER = "server"


def _command(example: str) -> Callable[[C], C]:
    def register(function: C) -> C:
        SUBCOMMANDS[function.__name__] = example
        return group.command(epilog=f"Example: {example}")(function)

    return register


@_command("llmops cluster render gcp-h100 > raycluster.yaml")
def render(
    template: Template,
    dry_run: Annotated[
        DryRun,
        typer.Option(help="`server` validates it with the API server; nothing is created."),
    ] = DryRun.NONE,
    namespace: Annotated[
        str | None, typer.Option(help="Default: the template's, else the context's.")
    ] = None,
    raycluster_only: Annotated[
        bool, typer.Option(help="Without the ConfigMap that starts warm workers.")
    ] = False,
) -> None:
    """Print the manifest that `up` would create. The same template gives the same text."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services import templates

    rendered = templates.render(
        template,
        namespace=namespace,
        validate=dry_run is DryRun.SERVER,
        with_companions=not raycluster_only,
    )
    if rendered.accepted_by:
        out(stderr=True).print(f"Accepted by the API server: {plain(rendered.accepted_by)}")
    echo(rendered.yaml, nl=False)


@_command("llmops cluster init team-a --kind gcp-h100")
def init(
    name: Annotated[str, typer.Argument(help="Name of the new cluster template, or its file.")],
    kind: Annotated[
        str,
        typer.Option(
            help="Starting point: `kuberay` and `local` explain every field;"
            " or a shipped template such as `gcp-h100`."
        ),
    ] = "kuberay",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a cluster template, with comments."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.services import templates

    path = templates.init(name, kind=kind, force=force)
    out().print(f"Wrote {path}. Next: llmops cluster render {name}")


@_command("llmops cluster diff gcp-h100")
def diff(template: Template, as_json: AsJson = False) -> None:
    """Show what applying a template would change on its running cluster: restarts, lost jobs."""
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services import templates

    effect = templates.effect(templates.cluster_of(template), template)
    if as_json:
        print_json(effect.model_dump(mode="json"))
        return
    _show(effect, out())


@_command("llmops cluster apply gcp-h100 --yes")
def apply(
    template: Template,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take ownership of fields that other clients have set.")
    ] = False,
    lose_history: Annotated[
        bool,
        typer.Option(
            "--lose-history", help="Continue when the history of its runs cannot be archived."
        ),
    ] = False,
) -> None:
    """Apply a template to its running cluster; asks for confirmation when work would be lost."""
    from llmops_kernel.cli.clusters.details import details
    from llmops_kernel.cli.console import out
    from llmops_kernel.services import templates

    cluster = templates.cluster_of(template)
    effect = templates.effect(cluster, template)
    _show(effect, out(stderr=True))
    if effect.kind == "nothing":
        return
    templates.require_possible(cluster, effect, force=force)
    _confirm(effect, template, yes=yes)
    changed = templates.apply(cluster, template, force=force, lose_history=lose_history)
    out().print(details(changed))


def _show(effect: EditEffect, console: Any) -> None:
    from llmops_kernel.cli.console import plain

    console.print(f"[bold]{plain(effect.kind)}[/]: {plain(effect.sentence)}")
    for line in effect.lines:
        console.print(f"  {plain(line)}")
    for line in effect.stops:
        console.print(f"  [red]Stops:[/] {plain(line)}")
    if effect.conflict:
        console.print(f"  [bold]Other owners:[/] {plain(effect.conflict)}")
    if effect.safe_way:
        console.print(f"  [bold]To lose no work:[/] {plain(effect.safe_way)}")


def _confirm(effect: EditEffect, template: str, *, yes: bool) -> None:
    from llmops_kernel.errors import LLMOpsError

    if yes or not effect.needs_confirmation:
        return
    if not sys.stdin.isatty():
        raise LLMOpsError(
            "Nothing was applied: it needs confirmation and there is no terminal",
            remedy=f"llmops cluster apply {template} --yes",
        )
    typer.confirm("Apply?", abort=True)


# --- `llmops cluster guard`, `llmops keep`: suspend idle clusters, or keep one up ---


_GUARD_EXAMPLE = "llmops cluster guard gcp-h100 --once"
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SUBCOMMANDS["guard"] = _GUARD_EXAMPLE


@group.command(epilog=f"Example: {_GUARD_EXAMPLE}")
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
    from llmops_kernel.services.clusters import guard_once, watch

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


# --- `llmops cluster rights | rbac`: what users of a template need to be allowed on Kubernetes ---


_RIGHTS = "llmops cluster rights gcp-h100"
_RBAC = "llmops cluster rbac gcp-h100 --for group:ml-engineers > rbac.yaml"
SUBCOMMANDS.update(rights=_RIGHTS, rbac=_RBAC)
Namespace = Annotated[str | None, typer.Option(help="Default: the template's, else the context's.")]
_COLUMNS = ("granted", "verb", "resource", "rule", "off without it")


@group.command(epilog=f"Example: {_RIGHTS}")
def rights(template: Template, namespace: Namespace = None, as_json: AsJson = False) -> None:
    """List the rights that a template's clusters need, and whether you have them.

    Each right is checked with a SelfSubjectAccessReview, which every signed-in user may make. Exits
    with 1 if a right of the namespace is missing.
    """
    from llmops_kernel.cli.console import out, plain, print_json, table
    from llmops_kernel.services import templates

    rows, place = templates.rights(template, namespace=namespace)
    missing = [right for right in rows if right.is_granted is False and not right.is_cluster_wide]
    if as_json:
        print_json([right.model_dump(mode="json") for right in rows])
    else:
        out(stderr=True).print(f"Asked in {plain(place)}")
        out().print(table(_COLUMNS, [_row(right) for right in rows]))
        if missing:
            next_step = f"llmops cluster rbac {plain(template)} --for user:NAME"
            out().print(f"Missing: {len(missing)}. An administrator grants them with: {next_step}")
    if missing:
        raise typer.Exit(1)


@group.command(epilog=f"Example: {_RBAC}")
def rbac(
    template: Template,
    for_: Annotated[
        str,
        typer.Option(
            "--for", help="Who gets the rights: `user:`, `group:` or `service-account:` and a name."
        ),
    ],
    namespace: Namespace = None,
    cluster_wide: Annotated[
        bool,
        typer.Option(
            "--cluster-wide",
            help="The optional ClusterRole instead: reads of nodes and of Kueue's quotas.",
        ),
    ] = False,
) -> None:
    """Print a Role with exactly what a template's clusters need, and its RoleBinding.

    Rights for a single object name it. Does not contact an API server.
    """
    from llmops_kernel.services import templates

    text = templates.roles(template, subject=for_, namespace=namespace, cluster_wide=cluster_wide)
    echo(text, nl=False)


def _row(right: RightState) -> list[str]:
    from llmops_kernel.cli.console import plain

    granted = {True: "yes", False: "[red]no[/]", None: "–"}[right.is_granted]
    name = f" {right.name}" if right.name else ""
    scope = " (cluster-wide, optional)" if right.is_cluster_wide else ""
    rule = "–" if right.rule is None else str(right.rule)
    return [granted, right.verb, plain(f"{right.resource}{name}{scope}"), rule, plain(right.off)]
