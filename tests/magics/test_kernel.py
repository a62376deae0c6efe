"""`%%train` in a real kernel: a run of a real cluster, with its panel in the cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from llmops_kernel.providers.protocol import ClusterInfo

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside]
Outputs = list[dict[str, Any]]


@pytest.fixture
def kernel(folder: Path) -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(cwd=str(folder))
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(kernel: BlockingKernelClient, code: str) -> tuple[str, Outputs]:
    """Run a cell; return how it ended, and the contents of its outputs."""
    outputs: Outputs = []
    reply = kernel.execute_interactive(
        code,
        timeout=120,
        output_hook=lambda message: outputs.append(
            {"is": message["msg_type"], **message["content"]}
        ),
    )
    return reply["content"]["status"], outputs


def text_of(outputs: Outputs) -> str:
    return "".join(one.get("text", "") for one in outputs)


def test_a_cell_trains_and_leaves_its_run(
    kernel: BlockingKernelClient, ray_cluster: ClusterInfo
) -> None:
    assert execute(kernel, "%load_ext llmops_kernel")[0] == "ok"
    code = (
        f"%%train a.train.yaml --cluster {ray_cluster.name} --as first --wait\nlearning_rate=0.01"
    )
    status, outputs = execute(kernel, code)
    assert status == "ok", outputs
    assert "first = run magic-" in text_of(outputs)
    shown = [one["data"] for one in outputs if "data" in one]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in shown)
    assert any("image/png" in data for data in shown)
    asked = "print(first.state, len(first.metrics()), first.config.optimizer.learning_rate)"
    assert text_of(execute(kernel, asked)[1]) == "SUCCEEDED 2 0.01\n"
    status, outputs = execute(kernel, "%train a.train.yaml --cluster nowhere")
    assert status == "error"
    (error,) = (one for one in outputs if one["is"] == "error")
    assert error["ename"] == "MagicError"
    assert "Try: llmops up nowhere" in "\n".join(error["traceback"])
