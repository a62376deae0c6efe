"""Who listens where while a run trains: nothing of it can be reached from the network."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.store import paths
from tests.end_to_end.script_runs import succeeded, write
from tests.providers.conftest import all_listening, record_of
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]

# Holds each rank at its first step, with everything of the training in place.
HELD = """
import os, time
from pathlib import Path
from transformers import TrainerCallback

HERE = Path({here!r})

class Held(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        (HERE / f"at-step-{{os.environ['RANK']}}").touch()
        deadline_s = time.monotonic() + 120
        while not (HERE / "go").exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)

def callbacks():
    return [Held()]
"""
SCRIPT = """
    import os, time
    from pathlib import Path
    import torch, torch.distributed as dist

    here = Path({here!r})
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total.item()) == dist.get_world_size(), total
    (here / f"at-step-{{dist.get_rank()}}").touch()
    deadline_s = time.monotonic() + 120
    while not (here / "go").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    dist.destroy_process_group()
"""


def hold(workspace: Path, here: Path) -> None:
    (workspace / "hooks.py").write_text(HELD.format(here=str(here)))


def open_to_others(run: llmops.Run, here: Path, *, ranks: int) -> set[str]:
    """Return who listens on another address than loopback while all ranks are held; let them go."""

    def all_are_held() -> bool:
        assert run.view.state != "FAILED", run.view.message
        return all((here / f"at-step-{rank}").exists() for rank in range(ranks))

    until(all_are_held)
    listening = all_listening(record_of(paths.home(), "test"))
    (here / "go").touch()
    assert len(listening) > 8, "Ray itself listens on that many ports"
    return {
        f"{address}:{port}"
        for address, port in listening
        if not ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback
    }


@pytest.mark.parametrize(
    ("num_workers", "strategy", "method"),
    [(1, "zero2", "lora"), (2, "zero2", "lora"), (2, "fsdp", "lora"), (1, "ddp", "qlora")],
)
def test_nothing_of_a_sharded_training_listens_on_the_network(
    submit: Callable[..., llmops.Run],
    workspace: Path,
    tmp_path: Path,
    num_workers: int,
    strategy: str,
    method: str,
) -> None:
    hold(workspace, tmp_path)
    run = submit(
        num_workers=num_workers,
        strategy=strategy,
        method=method,
        max_steps=2,
        global_batch_size=2 * num_workers,
    )
    assert open_to_others(run, tmp_path, ranks=num_workers) == set()
    succeeded(run)
    start = run.view.start
    assert start is not None
    assert start.num_workers == num_workers
    assert ("nf4" in start.verified["weights"]) == (method == "qlora")
    (engine,) = [span for span in run.view.phases() if span.name == "engine"]
    assert engine.detail.startswith(start.verified["engine"])


@pytest.mark.parametrize("num_workers", [1, 2])
def test_nothing_of_a_distributed_script_listens_on_the_network(
    cluster: llmops.Cluster, tmp_path: Path, num_workers: int
) -> None:
    script = write(tmp_path, SCRIPT.format(here=str(tmp_path)))
    run = cluster.submit(script, num_workers=num_workers)
    assert open_to_others(run, tmp_path, ranks=num_workers) == set()
    succeeded(run)
