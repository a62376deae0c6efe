"""`llmops score`: submit a score config and follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.runs.submit import Follow, OnCluster, Workspace, lines_on, submitted

Changes = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the config.", metavar="[SECTION.FIELD=VALUE]..."),
]
MakeEnv = Annotated[
    bool,
    typer.Option(
        "--make-env/--no-env",
        help="Make vLLM's environment on this machine, once, where the config may use it.",
    ),
]


@command(RUNS, example="llmops score tags.score.yaml model.run=last")
def score(
    config: Annotated[Path, typer.Argument(help="Score config.", metavar="FILE")],
    overrides: Changes = None,
    cluster: OnCluster = "local",
    workspace: Workspace = None,
    follow: Follow = True,
    make_env: MakeEnv = True,
) -> None:
    """Score a table: a model's answer for each row, with metrics, as Parquet.

    Ctrl-C stops watching, not the run. A run that was stopped or has failed goes on where it was
    with `llmops retry`.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    target = api.cluster(cluster)
    run = target.score(
        config,
        overrides=overrides or (),
        workspace=workspace,
        make_env=make_env,
        progress=lines_on(out(stderr=True)),
    )
    submitted(run, cluster=cluster, follow=follow)
