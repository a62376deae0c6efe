"""A worker of a script: an actor of Ray that runs it with the environment of `torchrun`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from llmops_kernel.driver.last_lines import mark_last_lines
from llmops_kernel.driver.nodes import this_node, use_cores
from llmops_kernel.hardware import loopback
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.script import meeting
from llmops_kernel.warm.for_jobs import start_report


class ScriptActor:
    """Made by the driver with `ray.remote`; runs the script once."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def facts(self) -> dict[str, Any]:
        """Return what the driver needs to number the workers: `WorkerNode`'s fields."""
        import ray

        warm, reason = start_report()
        context = ray.get_runtime_context()
        node_id, price = this_node()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return {
            "node_id": node_id,
            "price": price,
            "host": ray.util.get_node_ip_address(),
            "gpus": tuple(str(gpu) for gpu in gpus),
            "warm": warm,
            "reason": reason,
        }

    def open_port(self, *, for_this_node: bool) -> int:
        """Return the port at which the workers meet; call it on rank 0.

        Where all are on this node the port is open from now on, for this machine only. Else the
        script opens it itself.
        """
        listener = meeting.listen()
        port = int(listener.getsockname()[1])
        if for_this_node:
            self._listener = listener
        else:
            listener.close()
        return port

    def run(self, payload: str, env: dict[str, str]) -> dict[str, Any] | None:
        """Run the script; return its failure as JSON, None when it ended with status 0."""
        from llmops_kernel.config.models.script import ScriptConfig
        from llmops_kernel.store.package.assets import link_assets
        from llmops_kernel.track.session import SPEC_ENV_VAR
        from llmops_kernel.train.script.program import run_program

        spec = RunSpec.model_validate_json(payload)
        config = ScriptConfig.model_validate(spec.config)
        workspace = Path.cwd()
        link_assets(workspace)
        os.environ.update(env)
        os.environ[SPEC_ENV_VAR] = spec.encode()
        use_cores(int(env["LOCAL_WORLD_SIZE"]))
        if meeting.READY_ENV_VAR in env:
            for name, value in loopback.settings().items():
                os.environ.setdefault(name, value)
        if self._listener is not None:
            meeting.serve(self._listener)
        meeting.keep_groups()
        failure = run_program(config, workspace)
        mark_last_lines(int(env["RANK"]))
        if failure is None:
            return None
        return failure.model_copy(update={"ranks": (int(env["RANK"]),)}).model_dump(mode="json")
