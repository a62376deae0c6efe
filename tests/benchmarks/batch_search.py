"""The search for the largest micro batch beside a run for each size, under a memory limit.

`python -m tests.benchmarks.batch_search --strategies ddp zero3 fsdp`: two workers on this CPU, on a
local cluster of its own. Rank 1 may write to so many MiB more than it has when its first step
begins (`RLIMIT_DATA`; a limit of addresses, `RLIMIT_AS`, counts what the allocator of each thread
reserves, and the same size then fits or not by chance). The exhaustive search is one run for each
size, of which the time from its workers' start to the end of its first step counts, or to its
failure. The search holds some memory back: next to a limit it takes the size below.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

import llmops_kernel as llmops
from llmops_kernel.config.less_memory import divisors
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.paths import HOME_ENV_VAR

ROWS = 48
"""Of a worker's step: ten sizes divide it."""
WORKERS, LENGTH = 2, 512
HOOKS = """\
import os
import resource

import psutil
from transformers import TrainerCallback


class Limited(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if os.environ["RANK"] == "1" and not state.global_step:
            room = psutil.Process().memory_info().data + {room}
            resource.setrlimit(resource.RLIMIT_DATA, (room, resource.RLIM_INFINITY))


def callbacks():
    return [Limited()]

# {unique}
"""


def write(folder: Path, strategy: str, *, room: int) -> Path:
    """Write rows, hooks that no other run has, and the config; return its path."""
    folder.mkdir(exist_ok=True)
    text = " ".join(str(number) for number in range(4 * LENGTH))
    lines = (json.dumps({"text": f"{number} {text}"}) for number in range(4 * ROWS))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "hooks.py").write_text(HOOKS.format(room=room, unique=uuid.uuid4()))
    config: dict[str, Any] = {
        "name": "batch",
        "model": {"id": "tiny-llama", "dtype": "float32"},
        "data": {"train": "rows.jsonl", "max_length": LENGTH, "long_texts": "cut"},
        "method": "full",
        "parallelism": {"strategy": strategy, "num_workers": WORKERS, "use_gpu": False},
        "training": {
            "micro_batch_size": "auto",
            "global_batch_size": ROWS * WORKERS,
            "max_steps": 2,
            "on_oom": "stop",
            "max_failures": 0,
        },
        "evaluation": {"at_end": False},
        "hooks": "hooks.py",
    }
    file = folder / "batch.train.yaml"
    file.write_text(json.dumps(config))
    return file


def view_of(cluster: llmops.Cluster, file: Path, **overrides: Any) -> TrainingView:
    """Return the view of a run that has ended, whichever way."""
    run = cluster.submit(file, **overrides)
    run.wait(600, raise_on_failure=False)
    assert isinstance(run.view, TrainingView)
    return run.view


def seconds_of_one(view: TrainingView) -> float:
    """Return the time of a try: from the begin of the workers to the first step, or to the end."""
    spans = {span.name: span for span in view.phases()}
    last = spans.get("first_step", max(spans.values(), key=lambda span: span.begin_s))
    if view.state == "SUCCEEDED" and last.end_s is not None:
        return last.end_s - spans["workers"].begin_s
    assert view.end is not None
    return view.end.time_s - spans["workers"].begin_s


def case(cluster: llmops.Cluster, folder: Path, strategy: str, *, room: int) -> str:
    """Return a line of the table: both answers, both times, and their ratio."""
    file = write(folder, strategy, room=room)
    view_of(cluster, file, micro_batch_size=1)  # Compiles what DeepSpeed needs, and fills caches.
    view = view_of(cluster, file)
    span = next(span for span in view.phases() if span.name == "batch_search")
    assert span.end_s is not None
    search_s, size = span.end_s - span.begin_s, view.start.micro_batch_size if view.start else 0
    fits, all_s = [], 0.0
    for each in divisors(ROWS):
        tried = view_of(cluster, file, micro_batch_size=each)
        all_s += seconds_of_one(tried)
        if tried.state == "SUCCEEDED":
            fits.append(each)
        print(f"  {strategy} {each}: {tried.state}, {seconds_of_one(tried):.1f} s", flush=True)
    print(f"  {strategy}: {span.detail}", flush=True)
    best = max(fits, default=0)
    return (
        f"| {strategy} | {size} | {best} | {search_s:.1f} | {all_s:.1f} | {search_s / all_s:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strategies", nargs="+", default=["ddp", "zero3", "fsdp"])
    parser.add_argument("--room-mib", type=int, default=160)
    arguments = parser.parse_args()
    lines = ["| strategy | search | exhaustive | search, s | exhaustive, s | ratio |"]
    lines.append("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="llmops-batch-") as folder:
        os.environ[HOME_ENV_VAR] = f"{folder}/home"
        cluster = llmops.up("local")
        try:
            for strategy in arguments.strategies:
                room = arguments.room_mib * 2**20
                lines.append(case(cluster, Path(folder) / "workspace", strategy, room=room))
        finally:
            cluster.down()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
