"""Planned beside measured tokens per second of trainings on this CPU.

`python -m tests.benchmarks.planned_speed`: four trainings are run and stay in a store of their own;
`llmops plan` learns from them. Then eight others are planned, and trained. Each is a process with
all cores, before other processes where the system allows it. Rows are of one length. Each training
is repeated (`--times`), a round of all after another: how far the same training differs from itself
says what this machine can show.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

STEPS = 7
SMOL = "SmolLM2-135M-Instruct"


def _sizes(family: str, hidden: int, inner: int, layers: int, heads: int, keys: int) -> Any:
    return {
        "model_type": family, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": keys,
        "vocab_size": 49152, "tie_word_embeddings": True, "max_position_embeddings": 2048,
        "use_cache": False,
    }  # fmt: skip


MODELS = {
    "llama-18M": _sizes("llama", 256, 768, 8, 4, 2),
    "llama-51M": _sizes("llama", 512, 1536, 8, 8, 4),
    "qwen2-20M": _sizes("qwen2", 256, 1024, 8, 4, 2),
    "qwen2-71M": _sizes("qwen2", 512, 2048, 12, 8, 2),
    "qwen2-113M": _sizes("qwen2", 768, 2048, 12, 12, 4),
}
CHECKPOINTING = {"gradient_checkpointing": True}
# Name: model, method, parallelism, micro batch, passes, tokens of a row.
LEARNED: dict[str, tuple[str, str, dict[str, Any], int, int, int]] = {
    "llama-18M full": ("llama-18M", "full", {}, 4, 1, 128),
    "SmolLM2-135M lora": (SMOL, "lora", {}, 2, 1, 256),
    "qwen2-71M full, 2 passes": ("qwen2-71M", "full", {}, 2, 2, 256),
    "qwen2-20M lora, checkpointing": ("qwen2-20M", "lora", CHECKPOINTING, 8, 1, 128),
}
PLANNED: dict[str, tuple[str, str, dict[str, Any], int, int, int]] = {
    "llama-51M full": ("llama-51M", "full", {}, 4, 1, 256),
    "llama-51M lora": ("llama-51M", "lora", {}, 8, 1, 128),
    "SmolLM2-135M full": (SMOL, "full", {}, 2, 1, 128),
    "SmolLM2-135M lora, checkpointing": (SMOL, "lora", CHECKPOINTING, 4, 1, 192),
    "qwen2-71M lora": ("qwen2-71M", "lora", {}, 2, 1, 512),
    "qwen2-20M full, 2 passes": ("qwen2-20M", "full", {}, 8, 2, 128),
    "qwen2-113M full, checkpointing": ("qwen2-113M", "full", CHECKPOINTING, 2, 1, 256),
    "qwen2-113M lora, 4 passes": ("qwen2-113M", "lora", {}, 2, 4, 128),
}
CASES = LEARNED | PLANNED


def config_of(name: str) -> dict[str, Any]:
    """Return a case's training config."""
    model, method, parallelism, micro, passes, length = CASES[name]
    return {
        "name": "speed",
        "model": {"id": model, "dtype": "float32"},
        "data": {
            "train": "rows.jsonl",
            "max_length": length,
            "shuffle": False,
            "long_texts": "cut",
        },
        "method": method,
        "parallelism": {"strategy": "ddp", "use_gpu": False, **parallelism},
        "training": {
            "micro_batch_size": micro,
            "global_batch_size": micro * passes,
            "max_steps": STEPS,
        },
    }


def prepare(folder: Path) -> None:
    """Write rows that fill a sequence, and models with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare as prepare_catalogue

    text = " ".join(f"dish number {number} of the menu," for number in range(400))
    (folder / "rows.jsonl").write_text((json.dumps({"text": text}) + "\n") * 256)
    tokenizer = AutoTokenizer.from_pretrained(str(prepare_catalogue(SMOL)))
    torch.manual_seed(0)
    for name, values in MODELS.items():
        sizes = {key: value for key, value in values.items() if key != "model_type"}
        config = AutoConfig.for_model(values["model_type"], **sizes)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def run_id_of(name: str, number: int) -> str:
    return f"speed-{list(CASES).index(name)}-{number}"


def work(name: str, folder: Path, run_id: str) -> None:
    """Train a case as a run of the store."""
    from llmops_kernel.config.models.train import TrainingConfig
    from llmops_kernel.store.journal.journal import JournalWriter
    from llmops_kernel.store.record import RunRecord
    from llmops_kernel.store.store import RunStore
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train

    config = TrainingConfig.model_validate(config_of(name))
    record = RunRecord(
        run_id=run_id, name="speed", created_s=time.time(), cluster="local",
        config=config.model_dump(mode="json"),
    )  # fmt: skip
    run = RunStore().create(record, config_yaml="")
    journal = JournalWriter([run.journal], stream="1-worker-1", attempt=1)
    train(config, WorkerContext(run_id=run_id, folder=run.root, workspace=folder, journal=journal))
    journal.close()
    os._exit(0)


def measured(name: str, folder: Path, number: int) -> float:
    """Train a case; return tokens per second of the median step."""
    from llmops_kernel.metrics.events import StepEvent
    from llmops_kernel.store.store import RunStore

    log, run_id = folder / f"{name}.log", run_id_of(name, number)
    with log.open("w") as file:
        command = [sys.executable, "-m", __spec__.name, "--worker", name, str(folder), run_id]
        if subprocess.run(command, stdout=file, stderr=file, check=False).returncode:
            raise SystemExit(f"{name}: {log.read_text()[-2000:]}")
    events = RunStore().events(run_id)
    steps = [event for event in events if isinstance(event, StepEvent)][1:]
    return median((step.tokens or 0) / (step.step_time_s or 1.0) for step in steps)


def planned(name: str, folder: Path) -> float:
    """Return what `llmops plan` expects of a case."""
    from llmops_kernel.services.plan import plan_config

    plan = plan_config(config_of(name), workspace=folder).plan
    if plan.speed is None:
        raise SystemExit(f"{name}: nothing was learned")
    return plan.speed.tokens_per_second


def main() -> None:
    """Learn, plan, measure, and print both beside each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=3, metavar=("CASE", "FOLDER", "RUN"))
    parser.add_argument("--times", type=int, default=2)
    given = parser.parse_args()
    if given.worker:
        name, where, run_id = given.worker
        work(name, Path(where), run_id)
    from llmops_kernel.hardware.priority import set_session_niceness

    if os.getpid() != os.getsid(0):
        os.setsid()
    set_session_niceness(os.getpid(), -20)
    with tempfile.TemporaryDirectory() as home:
        os.environ["LLMOPS_HOME"] = home
        folder = Path(home) / "work"
        folder.mkdir()
        prepare(folder)
        trained = rates(list(LEARNED), folder, given.times)
        for name, all_rates in trained.items():
            print(f"{name:34} measured {mean(all_rates):7.1f} tokens/s", flush=True)
        plans = {name: planned(name, folder) for name in PLANNED}
        others = rates(list(PLANNED), folder, given.times)
    errors = {name: plans[name] / mean(all_rates) - 1 for name, all_rates in others.items()}
    for name, all_rates in others.items():
        print(
            f"{name:34} measured {mean(all_rates):7.1f} tokens/s  planned {plans[name]:7.1f}"
            f"  {errors[name]:+.1%}"
        )
    spreads = [max(one) / min(one) - 1 for one in (trained | others).values()]
    if given.times > 1:
        print(f"a training again differs by {median(spreads):.1%}, at most {max(spreads):.1%}")
    print(f"median of the errors' size: {median(map(abs, errors.values())):.1%}")


def rates(names: list[str], folder: Path, times: int) -> dict[str, list[float]]:
    """Train each case in turn, so many times; return tokens per second of each."""
    of_each: dict[str, list[float]] = {name: [] for name in names}
    for number in range(times):
        for name, all_rates in of_each.items():
            all_rates.append(measured(name, folder, number))
            load = os.getloadavg()[0]
            print(f"  {name}: {all_rates[-1]:.1f} tokens/s, load {load:.1f}", flush=True)
    return of_each


if __name__ == "__main__":
    main()
