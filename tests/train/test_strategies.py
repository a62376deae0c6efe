"""The same config at every parallelism, two workers, fp32: same losses, and the right engine."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.journal.journal import FolderTail
from tests.train.nan_hooks import write_nan_hooks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "zero1": {"strategy": "zero1"},
    "zero2": {"strategy": "zero2"},
    "zero3": {"strategy": "zero3"},
    "zero3+offload": {
        "strategy": "zero3",
        "offload_optimizer": True,
        "offload_params": True,
    },
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Pairs:
    """Trains with two processes at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def train(self, config: Any, folder: Path, workspace: Path) -> tuple[str, list[float]]:
        """Return the wrapped model's class and the loss of each step."""
        codes = self.run(config, folder, workspace)
        assert codes == [0, 0], (folder / "0.log").read_text()[-3000:]
        events = FolderTail(folder / "journal").read()
        engine = next(event.engine for event in events if event.kind == "start")
        return engine, [event.loss or 0.0 for event in events if event.kind == "step"]

    def run(self, config: Any, folder: Path, workspace: Path) -> list[int]:
        """Return the exit codes. `<rank>.log` has what the processes printed."""
        spec = {
            "config": config.model_dump(mode="json"),
            "folder": str(folder),
            "workspace": str(workspace),
        }
        folder.mkdir()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"spec": spec, "env": {"MASTER_PORT": str(free_port())}}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        assert isinstance(codes, list)
        return codes


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "TORCH_EXTENSIONS_DIR": str(Path(os.environ["LLMOPS_CACHE"]) / "torch_extensions"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.train.strategy_worker"],
        env={**os.environ, **shared},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield Pairs(process)
    os.killpg(process.pid, signal.SIGKILL)  # Also what a failed test has left running.
    process.communicate()


def test_bfloat16_through_deepspeed_stays_close_to_float32(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path
) -> None:
    losses = {}
    for dtype in ("float32", "bfloat16"):
        config = make_config(
            model={"id": "tiny-llama", "dtype": dtype},
            parallelism={"strategy": "zero2", "num_workers": 2},
            training={"max_steps": 5},
        )
        engine, losses[dtype] = pairs.train(config, tmp_path / dtype, workspace)
        assert engine == "DeepSpeedEngine"
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_every_parallelism_gives_the_same_losses(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path, method: str
) -> None:
    found = {}
    for name, parallelism in STRATEGIES.items():
        config = make_config(
            method=method,
            parallelism={**parallelism, "num_workers": 2},
            training={"micro_batch_size": 2, "global_batch_size": 8, "max_steps": 20},
            optimizer={"learning_rate": 2e-3},
            data={"eval": "train.jsonl", "max_eval_rows": 5},
        )
        # Both methods at each end, the whole list for one: each pair takes seconds.
        if method == "full" or name in ("ddp", "zero3"):
            found[name] = pairs.train(config, tmp_path / name, workspace)
    engines = {name: engine for name, (engine, _) in found.items()}
    assert engines.pop("ddp") == "DistributedDataParallel"
    # An engine that silently is not DeepSpeed's would give the very same losses.
    assert set(engines.values()) == {"DeepSpeedEngine"}
    reference = found["ddp"][1]
    assert len(reference) == 20
    assert reference[-1] < reference[0] - 0.3
    for name, (_, losses) in found.items():
        worst = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
        print(f"{method} {name}: largest difference to ddp over 20 steps {worst:.2e}")
        assert worst < 1e-3, name


def test_a_nan_on_one_worker_stops_both_at_the_same_step(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path
) -> None:
    write_nan_hooks(workspace, steps=(3,), ranks=(1,))
    config = make_config(
        method="full", hooks="hooks.py", parallelism={"strategy": "ddp", "num_workers": 2}
    )
    assert pairs.run(config, tmp_path / "stop", workspace) == [1, 1]
    for rank in range(2):
        log = (tmp_path / "stop" / f"{rank}.log").read_text()
        assert "DivergedError: The loss is nan at step 3." in log
    steps = [e for e in FolderTail(tmp_path / "stop" / "journal").read() if e.kind == "step"]
    assert [math.isnan(step.loss or 0.0) for step in steps] == [False, False, True]


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_a_nan_on_one_worker_is_skipped_by_both(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path, strategy: str
) -> None:
    write_nan_hooks(workspace, steps=(3,), ranks=(1,))
    config = make_config(
        method="full",
        hooks="hooks.py",
        parallelism={"strategy": strategy, "num_workers": 2},
        training={"on_nan": "skip"},
    )
    _, losses = pairs.train(config, tmp_path / strategy, workspace)
    assert [math.isnan(loss) for loss in losses] == [False, False, True, False, False, False]
    assert losses[-1] < losses[0]
