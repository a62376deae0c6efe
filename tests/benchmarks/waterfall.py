"""Waterfall and verdict of trainings whose bottleneck is made on purpose, and what a change gives.

`python -m tests.benchmarks.waterfall`: each case trains on this CPU, its verdict proposes a change,
and the same training with the change shows whether the prediction held. Ray is not needed. What
stands for a slow device is in `HOOKS`: a file of hooks, as a user's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.kinds.reading import from_record
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.planner.verdict import Verdict
from llmops_kernel.services.verdict import verdict_of
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.waterfall import lines, waterfall_of
from tests.train.strategy_pairs import compiled_ops, free_port

LENGTH = 64
STEPS = 20
HOOKS = {
    # A row that takes 20 ms to format.
    "slow loader": """\
import time
def format_example(row):
    time.sleep(0.02)
    return row["text"]
""",
    "tiny batch": "",
    # DeepSpeed's optimizer in host memory, 100 ms slower: a CPU has no other memory to be far from.
    "host offload": """\
import time
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
own = DeepSpeedZeroOptimizer.step
def step(self, *args, **kwargs):
    if self.cpu_offload:
        time.sleep(0.1)
    return own(self, *args, **kwargs)
DeepSpeedZeroOptimizer.step = step
""",
    # Each all-reduce of gradients takes 100 ms longer.
    "slow network": """\
import time
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
own = DistributedDataParallel.__init__
def slow(state, bucket):
    tensor = bucket.buffer().div_(dist.get_world_size())
    def wait(future):
        time.sleep(0.1)
        return future.value()[0]
    return dist.all_reduce(tensor, async_op=True).get_future().then(wait)
def init(self, *args, **kwargs):
    own(self, *args, **kwargs)
    self.register_comm_hook(None, slow)
DistributedDataParallel.__init__ = init
""",
}
BOUNDS = {
    "slow loader": "data",
    "tiny batch": "Python",
    "host offload": "host offload",
    "slow network": "network",
}


def config_of(case: str) -> dict[str, Any]:
    """Return a case's training config."""
    workers = 2 if case == "slow network" else 1
    parallelism: dict[str, Any] = {"strategy": "ddp", "num_workers": workers, "use_gpu": False}
    micro, rows = 2, 2 * workers
    if case == "tiny batch":
        micro, rows = 1, 16
    if case == "host offload":
        parallelism |= {"strategy": "zero2", "offload_optimizer": "cpu"}
    config: dict[str, Any] = {
        "name": "waterfall",
        "model": {"id": "tiny-llama", "dtype": "float32"},
        "data": {"train": "rows.jsonl", "max_length": LENGTH, "long_texts": "cut"},
        "method": "full",
        "parallelism": parallelism,
        "training": {"micro_batch_size": micro, "global_batch_size": rows, "max_steps": STEPS},
    }
    if case == "slow loader":
        config["training"] |= {"micro_batch_size": 4, "global_batch_size": 4}
        config["data"] |= {"streaming": True, "shuffle": False}
    if HOOKS[case]:
        config["hooks"] = "hooks.py"
    return TrainingConfig.model_validate(config).model_dump(mode="json")


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    record: RunRecord
    view: TrainingView

    @property
    def tokens_per_second(self) -> float:
        """Return the rate over the whole window, with what is between steps."""
        measured = self.view.measured
        assert measured is not None
        assert measured.overall_tokens_per_second is not None
        return measured.overall_tokens_per_second

    @property
    def explained(self) -> float:
        """Return all bars with `mfu`, in seconds, by the wall clock of the journal."""
        losses, measured = waterfall_of(self.view), self.view.measured
        assert losses is not None
        assert measured is not None
        first, last = self.view.steps[-measured.steps], self.view.steps[-1]
        wall_s = last.time_s - first.time_s + (first.step_time_s or 0.0)
        return losses.total * measured.window_s / wall_s


# --- One worker ---


def work(config: str, folder: Path) -> None:
    """Train as one worker."""
    import torch.distributed as dist

    from llmops_kernel.store.journal.journal import JournalWriter
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    journal = None
    if rank == 0:
        journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    context = WorkerContext(
        run_id="waterfall",
        rank=rank,
        world_size=size,
        local_rank=rank,
        # One thread each: others on this machine disturb it less than two that wait for each other.
        local_world_size=2,
        folder=folder,
        workspace=folder.parent,
        journal=journal,
    )
    train(TrainingConfig.model_validate_json(config), context)
    sys.stdout.flush()
    os._exit(0)


def trained(config: dict[str, Any], workspace: Path, name: str) -> Trained:
    """Train with the config's workers, and return what the journal says."""
    workers = config["parallelism"]["num_workers"]
    folder = workspace / name
    folder.mkdir()
    shared = {
        **os.environ,
        **compiled_ops(),
        "WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.benchmarks.waterfall", "--worker", json.dumps(config)]
    processes = []
    for rank in range(workers):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        with (folder / f"{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [*command, str(folder)], env=shared | place, stdout=log, stderr=log
                )
            )
    for rank, process in enumerate(processes):
        if process.wait(timeout=600):
            raise SystemExit(f"{name}: {(folder / f'{rank}.log').read_text()[-3000:]}")
    record = RunRecord(
        run_id=name,
        name=name,
        created_s=0.0,
        cluster="local",
        config=config,
        workspace_root=str(workspace),
    )
    return Trained(record, TrainingView(FolderTail(folder / "journal").read()))


def try_case(case: str, root: Path) -> tuple[Trained, Verdict, Trained | None]:
    """Train, ask for the verdict, and train with its change."""
    workspace = root / case.replace(" ", "-")
    workspace.mkdir()
    text = " ".join(f"dish number {number} of the menu," for number in range(LENGTH))
    (workspace / "rows.jsonl").write_text((json.dumps({"text": text}) + "\n") * 256)
    (workspace / "hooks.py").write_text(HOOKS[case])
    before = trained(config_of(case), workspace, "before")
    verdict = verdict_of(before.record, before.view)
    assert verdict is not None
    if not verdict.change:
        return before, verdict, None
    changed = from_record(kind_named("train"), before.record.config, verdict.change)
    after = trained(changed.model_dump(mode="json"), workspace, "after")
    return before, verdict, after


def main() -> None:
    """Try each case, and print its waterfall, its verdict and what the change gave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, metavar=("CONFIG", "FOLDER"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    given = parser.parse_args()
    if given.worker:
        work(given.worker[0], Path(given.worker[1]))
    table = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLMOPS_HOME"] = home
        os.environ.setdefault("LLMOPS_CACHE", str(Path(home) / "cache"))
        for case, bound in BOUNDS.items():
            if given.only not in case:
                continue
            before, verdict, after = try_case(case, Path(home))
            losses = waterfall_of(before.view)
            assert losses is not None
            print(f"\n{case}", *lines(losses), verdict.sentence, sep="\n", flush=True)
            rate = before.tokens_per_second
            gain = None if after is None else after.tokens_per_second / rate - 1
            names = "right" if verdict.bound == bound else f"WRONG, expected {bound}"
            table.append(
                f"{case:14} {verdict.bound:14} {names:8} bars {before.explained:7.1%}"
                f"  predicted {verdict.gain or 0:+7.0%}  measured {gain or 0:+7.0%}"
            )
    print("", *table, sep="\n")


if __name__ == "__main__":
    main()
