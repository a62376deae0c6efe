"""`llmops cluster rights | rbac`: what users of a template need to be allowed on Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.clusters.group import SUBCOMMANDS, AsJson, Template, group
from llmops_kernel.cli.console import echo

if TYPE_CHECKING:
    from llmops_kernel.services.types import RightState

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
