"""`llmops engines`: the models that stay loaded on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from llmops_kernel.cli.app import CLUSTERS, command
from llmops_kernel.cli.clusters.commands import AsJson, ClusterName
from llmops_kernel.config.counted import counted


@command(CLUSTERS, example="llmops engines local --stop")
def engines(
    name: ClusterName = "local",
    stop: Annotated[
        bool, typer.Option("--stop", help="End those that have no work; takes a few seconds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the models that score runs and chats have loaded, or end the idle ones.

    An engine stays loaded for `engine.keep_s` seconds after its last run, so that the next one
    starts at once. It is also ended when a training run needs its GPU.
    """
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services.clusters import find
    from llmops_kernel.services.scoring.standing import end_idle, engine_line

    cluster = find(name)
    if stop:
        with out(stderr=True).status("Ending idle engines ..."):
            found = end_idle(cluster)
        if as_json:
            return print_json({"ended": found.ended, "busy": found.busy})
        stays = f"; {len(found.busy)} with work stay" if found.busy else ""
        return out().print(f"Ended {counted(len(found.ended), 'idle engine')}{stays}.")
    known = cluster.ready_info().engines
    if as_json:
        return print_json(None if known is None else [one.model_dump() for one in known])
    if known is None:
        return out().print("– (the cluster did not answer)")
    for one in known:
        out().print(engine_line(one), markup=False, highlight=False)
    return None if known else out().print(f"No model is loaded on cluster {name}.")
