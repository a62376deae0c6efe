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
