"""`llmops metrics prometheus | grafana`: files with which a team's monitoring shows the runs."""

from __future__ import annotations

from typing import Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, EXAMPLES, app
from llmops_kernel.cli.console import echo

_EXAMPLE = "llmops metrics prometheus > prometheus.yml"
EXAMPLES["metrics"] = _EXAMPLE

group = typer.Typer(
    no_args_is_help=True,
    help="Prometheus and Grafana: what to scrape, and a dashboard of runs.",
)
app.add_typer(group, name="metrics", rich_help_panel=CLUSTERS, epilog=f"Example: {_EXAMPLE}")


@group.command(epilog=f"Example: {_EXAMPLE}")
def prometheus(
    provider: Annotated[
        str | None,
        typer.Option(help="`local` or `kuberay`; default: all that can have clusters here."),
    ] = None,
) -> None:
    """Print what Prometheus has to scrape, as a config file.

    Also for `scrape_config_files` of a config of your own. Clusters that are started later are
    found by themselves. A run's series begin 10 s after its start and end some 20 s after its end.
    """
    from llmops_kernel.services.clusters import scrape_configs

    echo(scrape_configs(provider), nl=False)


@group.command(epilog="Example: llmops metrics grafana > llmops-runs.json")
def grafana(
    config_map: Annotated[
        str, typer.Option(help="Print a ConfigMap of this name, for Grafana's sidecar.")
    ] = "",
    namespace: Annotated[str, typer.Option(help="Of the ConfigMap.")] = "",
) -> None:
    """Print a dashboard of runs, to import into Grafana."""
    from llmops_kernel.services.clusters import grafana_dashboard

    echo(grafana_dashboard(config_map=config_map, namespace=namespace), nl=False)
