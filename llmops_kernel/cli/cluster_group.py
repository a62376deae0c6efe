"""`llmops cluster render | init | diff | apply`: templates of clusters on Kubernetes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from llmops_kernel.cli.app import CLUSTERS, EXAMPLES, app
from llmops_kernel.cli.config_commands import write_new

if TYPE_CHECKING:
    from llmops_kernel.clusters.kuberay.effect_of_edit import EditEffect
    from llmops_kernel.clusters.kuberay.provider import KubeRayProvider
    from llmops_kernel.config.kuberay import KubeRayTemplate

C = TypeVar("C", bound=Callable[..., Any])
_EXAMPLE = "llmops cluster render kind-cpu"
_FOLDER = "cluster_templates"
EXAMPLES["cluster"] = _EXAMPLE
SUBCOMMANDS: dict[str, str] = {}
"""Command of the group -> the example in its help."""

group = typer.Typer(
    no_args_is_help=True,
    help="Cluster templates for Kubernetes: write one, see what it makes, apply a change of it.",
)
app.add_typer(group, name="cluster", rich_help_panel=CLUSTERS, epilog=f"Example: {_EXAMPLE}")

Template = Annotated[
    str, typer.Argument(help="Name of a cluster template, or path of its YAML file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


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
        typer.Option(help="`server` asks the API server whether it would take it."),
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
    from llmops_kernel.clusters.kuberay import dry_run as server
    from llmops_kernel.clusters.kuberay import manifest

    loaded = _kuberay(template)
    if dry_run is DryRun.SERVER:
        made, place = server.accepted(loaded, namespace=namespace)
        out(stderr=True).print(f"The API server takes it: {plain(place)}")
    else:
        made = manifest.render(loaded, namespace=namespace or server.usual_namespace(loaded))
    typer.echo(made.to_yaml(with_companions=not raycluster_only), nl=False)


@_command("llmops cluster init team-a --kind gcp-h100")
def init(
    name: Annotated[str, typer.Argument(help="Name of the new cluster template, or its file.")],
    kind: Annotated[
        str,
        typer.Option(
            help="What to begin with: `kuberay` and `local` explain every field;"
            " or a shipped template such as `gcp-h100`."
        ),
    ] = "kuberay",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a cluster template, with comments."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.config.cluster import template_from
    from llmops_kernel.config.yaml_source import parse_yaml

    path = Path(name) if Path(name).suffix in (".yaml", ".yml") else Path(_FOLDER, f"{name}.yaml")
    text = _begun(kind, path.name.split(".")[0])
    template_from(parse_yaml(text, file=str(path)))
    write_new(path, text, force=force, with_folder=True)
    out().print(f"Wrote {path}. Next: llmops cluster render {name}")


@_command("llmops cluster diff gcp-h100")
def diff(template: Template, as_json: AsJson = False) -> None:
    """Tell what applying a template would do to its cluster that is up: restarts, lost jobs."""
    from llmops_kernel.cli.console import out, print_json

    loaded = _kuberay(template)
    effect = _provider().effect(loaded)
    if as_json:
        print_json(effect.model_dump(mode="json"))
        return
    _show(effect, out())


@_command("llmops cluster apply gcp-h100 --yes")
def apply(
    template: Template,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take over fields that others have set.")
    ] = False,
) -> None:
    """Make a cluster that is up what the template says now; asks when work would be lost."""
    from llmops_kernel.cli.cluster_commands import details
    from llmops_kernel.cli.console import out
    from llmops_kernel.clusters.kuberay.effect_of_edit import EditKind

    loaded, provider = _kuberay(template), _provider()
    effect = provider.effect(loaded)
    _show(effect, out(stderr=True))
    if effect.kind is EditKind.NOTHING:
        return
    _agree(effect, template, yes=yes)
    out().print(details(provider.apply(loaded, force=force)))


def _kuberay(template: str) -> KubeRayTemplate:
    from llmops_kernel.config.cluster import load_cluster_template
    from llmops_kernel.config.kuberay import KubeRayTemplate
    from llmops_kernel.errors import ConfigError

    loaded = load_cluster_template(template)
    if not isinstance(loaded, KubeRayTemplate):
        raise ConfigError(
            f"Template {template} is for provider {loaded.provider}: it makes no manifest",
            remedy="llmops cluster init NAME --kind kuberay writes one for Kubernetes",
        )
    return loaded


def _provider() -> KubeRayProvider:
    from llmops_kernel.clusters.kuberay.provider import KubeRayProvider

    return KubeRayProvider()


def _begun(kind: str, name: str) -> str:
    from llmops_kernel.config.cluster import TEMPLATES, shipped
    from llmops_kernel.config.problems import did_you_mean, listed
    from llmops_kernel.config.template import cluster_template
    from llmops_kernel.errors import ConfigError

    if kind in TEMPLATES:
        return cluster_template(provider=kind, name=name)
    if kind not in shipped():
        known = [*TEMPLATES, *shipped()]
        raise ConfigError(
            f"There is no kind of template {kind!r}",
            remedy=did_you_mean(kind, known) or f"one of {listed(known)}",
        )
    text = shipped()[kind].read_text(encoding="utf-8")
    # Its own name, also where pods are told by the label of their cluster.
    return re.sub(rf"^(name:|.*\bray\.io/cluster:) {kind}\b", rf"\1 {name}", text, flags=re.M)


def _show(effect: EditEffect, console: Any) -> None:
    from llmops_kernel.cli.console import plain

    console.print(f"[bold]{plain(effect.kind)}[/]: {plain(effect.sentence)}", soft_wrap=True)
    for line in effect.lines:
        console.print(f"  {plain(line)}", soft_wrap=True)
    for line in effect.stops:
        console.print(f"  [red]Stops:[/] {plain(line)}", soft_wrap=True)
    if effect.safe_way:
        console.print(f"  [bold]Without losing work:[/] {plain(effect.safe_way)}", soft_wrap=True)


def _agree(effect: EditEffect, template: str, *, yes: bool) -> None:
    from llmops_kernel.errors import LLMOpsError

    if yes or not effect.needs_confirmation:
        return
    if not sys.stdin.isatty():
        raise LLMOpsError(
            "Nothing was applied: it needs a yes and there is no terminal to ask",
            remedy=f"llmops cluster apply {template} --yes",
        )
    typer.confirm("Apply?", abort=True)
