"""`llmops cluster render | init | diff | apply`: cluster templates for Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from llmops_kernel.cli.app import CLUSTERS, EXAMPLES, app
from llmops_kernel.cli.complete import templates as complete_template
from llmops_kernel.cli.console import echo

if TYPE_CHECKING:
    from llmops_kernel.services.types import EditEffect


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
