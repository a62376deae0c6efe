"""Planned memory beside the resident memory of real trainings on this CPU.

`python -m tests.benchmarks.planned_memory`: each case trains three steps in processes of its own,
whose private memory is read each 2 ms; what they had before the model was loaded is subtracted.
Rows are of one length and without padding, so that a plan has nothing to assume.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.train.strategy_pairs import free_port

LENGTH = 256
QWEN = {
    "model_type": "qwen2", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 49152,
    "tie_word_embeddings": True, "max_position_embeddings": 2048, "use_cache": False,
}  # fmt: skip
SMOL = "SmolLM2-135M-Instruct"
# Name: model, method, parallelism, micro batch, passes, attention.
CASES: dict[str, tuple[str, str, dict[str, Any], int, int, str]] = {
    "SmolLM2 lora": (SMOL, "lora", {}, 4, 1, "sdpa"),
    "SmolLM2 full": (SMOL, "full", {}, 4, 1, "sdpa"),
    "SmolLM2 full checkpointing": (SMOL, "full", {"gradient_checkpointing": True}, 8, 1, "sdpa"),
    "SmolLM2 lora eager": (SMOL, "lora", {}, 4, 2, "eager"),
    "qwen2 full two passes": ("qwen", "full", {}, 4, 2, "sdpa"),
    "qwen2 lora checkpointing": ("qwen", "lora", {"gradient_checkpointing": True}, 8, 1, "sdpa"),
    "SmolLM2 full ddp": (SMOL, "full", {"strategy": "ddp", "num_workers": 2}, 2, 1, "sdpa"),
    "SmolLM2 full fsdp": (SMOL, "full", {"strategy": "fsdp", "num_workers": 2}, 2, 1, "sdpa"),
    "SmolLM2 full zero2": (SMOL, "full", {"strategy": "zero2", "num_workers": 2}, 2, 1, "sdpa"),
    "SmolLM2 full zero3": (SMOL, "full", {"strategy": "zero3", "num_workers": 2}, 2, 1, "sdpa"),
}


def config_of(name: str) -> dict[str, Any]:
    """Return a case's training config."""
    model, method, parallelism, micro, passes, attention = CASES[name]
    workers = parallelism.get("num_workers", 1)
    return {
        "name": "memory",
        "model": {"id": model, "dtype": "float32", "attention": attention},
        "data": {
            "train": "rows.jsonl",
            "max_length": LENGTH,
            "shuffle": False,
            "long_texts": "cut",
        },
        "method": method,
        "parallelism": {"strategy": "ddp", "use_gpu": False, **parallelism},
        "training": {
            "micro_batch_size": micro,
            "global_batch_size": micro * passes * workers,
            "max_steps": 3,
        },
        "performance": "off",
    }


def prepare(folder: Path) -> None:
    """Write rows that fill a sequence, and a model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare as prepare_catalogue

    text = " ".join(f"dish number {number} of the menu," for number in range(200))
    (folder / "rows.jsonl").write_text((json.dumps({"text": text}) + "\n") * 64)
    values = dict(QWEN)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(values.pop("model_type"), **values), dtype=torch.float32
    )
    # Files of bfloat16 are converted; those of float32 would be mapped, and frozen weights that
    # nobody writes to are no private memory.
    model.bfloat16().save_pretrained(folder / "qwen")
    AutoTokenizer.from_pretrained(str(prepare_catalogue(SMOL))).save_pretrained(folder / "qwen")


# --- One worker ---


def private_bytes() -> int:
    """Return the process's resident memory that no file is behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon")


def work(name: str, folder: Path) -> None:
    """Train as one worker, and print the most private memory above that before it."""
    import torch.distributed as dist

    from llmops_kernel.config.models.train import TrainingConfig
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train
    from llmops_kernel.warm.preload import DEFAULT_MODULES, preload

    preload([module for module in DEFAULT_MODULES if module.partition(".")[0] != "ray"])
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        dist.init_process_group("gloo")
    config = TrainingConfig.model_validate(config_of(name))
    context = WorkerContext(
        run_id="memory",
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        folder=folder / f"run of {name}",
        workspace=folder,
    )
    before, most, done = private_bytes(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            most[0] = max(most[0], private_bytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    train(config, context)
    done.set()
    watcher.join()
    print(json.dumps({"bytes": most[0] - before}), flush=True)
    os._exit(0)


def measured(name: str, folder: Path) -> float:
    """Return the most that a worker of a case needed, the mean of its workers."""
    workers = CASES[name][2].get("num_workers", 1)
    shared = {
        **os.environ,
        # Large blocks go back to the system at once, so that what is resident is in use.
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
        "MALLOC_ARENA_MAX": "1",
        "LLMOPS_PEAK_TFLOPS": "10",
        "OMP_NUM_THREADS": "1" if workers > 1 else "2",
    }
    if workers > 1:
        port = str(free_port())
        shared |= {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    # Files, as a full pipe would block a worker that the other one waits for.
    logs = [folder / f"{name}-{rank}.log" for rank in range(workers)]
    processes = []
    for rank, log in enumerate(logs):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if workers > 1 else {}
        with log.open("w") as file:
            command = [sys.executable, "-m", __spec__.name, "--worker", name, str(folder)]
            processes.append(
                subprocess.Popen(command, env=shared | place, stdout=file, stderr=file, text=True)
            )
    values = []
    for process, log in zip(processes, logs, strict=True):
        if process.wait(timeout=600):
            raise SystemExit(f"{name}: {log.read_text()[-2000:]}")
        (line,) = [line for line in log.read_text().splitlines() if line.startswith('{"bytes"')]
        values.append(json.loads(line)["bytes"])
    return sum(values) / len(values)


def planned(name: str, folder: Path) -> float:
    """Return what the planner expects of a case."""
    from dataclasses import replace

    from llmops_kernel.planner.memory import memory
    from llmops_kernel.services.plan import plan_config

    setup = plan_config(config_of(name), workspace=folder).plan.setup
    # All rows are equally long, so no mask is made.
    return memory(replace(setup, is_padded=False)).total


def main() -> None:
    """Measure each case, and print it beside its plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, metavar=("CASE", "FOLDER"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    given = parser.parse_args()
    if given.worker:
        work(given.worker[0], Path(given.worker[1]))
    errors = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLMOPS_HOME"] = home
        folder = Path(home) / "work"
        folder.mkdir()
        prepare(folder)
        for name in CASES:
            if given.only not in name:
                continue
            found, expected = measured(name, folder), planned(name, folder)
            errors.append(expected / found - 1)
            print(
                f"{name:28} measured {found / 2**20:7.0f} MiB  planned {expected / 2**20:7.0f} MiB"
                f"  {errors[-1]:+.1%}",
                flush=True,
            )
    if errors:
        print(f"median of the errors' size: {median(map(abs, errors)):.1%}")


if __name__ == "__main__":
    main()
