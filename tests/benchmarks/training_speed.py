"""Training on the shipped menu data: a bare Transformers Trainer, our loop, and our loop on `auto`.

    python -m tests.benchmarks.training_speed [--pairs 7] [--steps 20] [--method lora]

All three train SmolLM2-135M-Instruct on the same rows in the same order with the same seed, in one
process, in turn. Figures are medians over the rounds of the ratio of steps per second to the bare
Trainer's of the same round; `loss` is the largest relative difference to its loss in any step. The
bare side pads each batch to its longest row, which is the least that it can do.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from tests.benchmarks.loop_overhead import StepClock, _start_clock  # noqa: E402

_ROOT = Path(__file__).resolve().parents[2]
_HOOKS = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(_ROOT)!r}, str(Path(__file__).parent)]
from menu_hooks import format_example
from tests.benchmarks.loop_overhead import StepClock

def callbacks():
    return [StepClock.shared()]
"""
Run = tuple[float, list[float]]
"""Steps per second, and the loss of each step."""


def training_config(options: argparse.Namespace, mode: str) -> Any:
    """The shipped `lora.train.yaml`, without its evaluation."""
    from llmops_kernel.config.models.train import TrainingConfig
    from llmops_kernel.config.reading.document import parse_value

    data = parse_value((_ROOT / "notebooks" / "lora.train.yaml").read_text())
    data["data"].pop("eval")
    data["data"].pop("max_eval_rows")
    data["evaluation"] = {}
    data["hooks"] = "bench_hooks.py"
    data["performance"] = mode
    data["training"] = {
        "micro_batch_size": options.micro,
        "global_batch_size": options.batch,
        "max_steps": options.steps,
    }
    if options.method == "full":
        data["method"] = "full"
        data["optimizer"]["learning_rate"] = 2e-5
    return TrainingConfig.model_validate(data)


def ours(config: Any, workspace: Path, folder: Path) -> Run:
    """Train through our worker loop, journal and all."""
    from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train
    from llmops_kernel.train.performance import matmul

    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    clock = _start_clock()
    try:
        train(
            config,
            WorkerContext(run_id="bench", folder=folder, workspace=workspace, journal=journal),
        )
    finally:
        matmul.uninstall()  # the next side computes with PyTorch's own kernels
        journal.close()
    events = FolderTail(folder / "journal").read()
    chosen = next(event.performance for event in events if event.kind == "start")
    if chosen and chosen not in _shown:
        _shown.append(chosen)
        print(f"chosen: {chosen}", flush=True)
    losses = [event.loss or 0.0 for event in events if event.kind == "step"]
    return float(clock.steps_per_second()), losses


_shown: list[str] = []


def bare(config: Any, workspace: Path, folder: Path) -> Run:
    """What a user would write without us, on rows that are tokenised before the clock runs."""
    from transformers import AutoTokenizer, PrinterCallback, Trainer, set_seed

    from llmops_kernel.models.catalogue import prepare
    from llmops_kernel.train.data.examples import tokenise
    from llmops_kernel.train.data.sources import load_rows
    from llmops_kernel.train.hooks import load_hooks

    set_seed(config.seed)
    source, clock = str(prepare(config.model.id)), _start_clock()
    tokenizer = AutoTokenizer.from_pretrained(source)
    rows = load_rows(config.data.train, roots=(workspace,), split="train", limit=None)
    hooks = load_hooks(workspace / "bench_hooks.py")
    examples = tokenise(rows, tokenizer=tokenizer, data=config.data, hooks=hooks).examples
    trainer = Trainer(
        model=_model(source, config),
        args=_arguments(config, folder),
        train_dataset=[(one.input_ids, one.labels) for one in examples],
        data_collator=lambda batch: _collate(batch, tokenizer.pad_token_id),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    history = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return float(clock.steps_per_second()), [float(loss) for loss in history]


def _arguments(config: Any, folder: Path) -> Any:
    from transformers import TrainingArguments

    optimizer = config.optimizer
    return TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        seed=config.seed,
        per_device_train_batch_size=config.training.micro_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        max_steps=config.training.max_steps,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type=optimizer.lr_scheduler_type,
        warmup_steps=config.warmup_steps,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def _model(source: str, config: Any) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.config.use_cache = False
    if config.method.type == "full":
        return model
    lora = LoraConfig(
        r=config.method.r,
        lora_alpha=config.method.lora_alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, lora)


def _collate(batch: list[tuple[list[int], list[int]]], pad: int) -> dict[str, Any]:
    import torch

    width = max(len(ids) for ids, _ in batch)

    def padded(rows: list[list[int]], value: int) -> Any:
        return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])

    return {
        "input_ids": padded([ids for ids, _ in batch], pad),
        "labels": padded([labels for _, labels in batch], -100),
        "attention_mask": padded([[1] * len(ids) for ids, _ in batch], 0),
    }


def rounds(options: argparse.Namespace, root: Path) -> list[dict[str, Run]]:
    workspace = root / "workspace"
    shutil.copytree(_ROOT / "notebooks" / "data", workspace / "data")
    shutil.copy(_ROOT / "notebooks" / "menu_hooks.py", workspace)
    (workspace / "bench_hooks.py").write_text(_HOOKS)
    found = []
    for index in range(options.pairs):
        one: dict[str, Run] = {}
        plain = training_config(options, "off")
        one["bare"] = bare(plain, workspace, root / f"bare-{index}")
        one["off"] = ours(plain, workspace, root / f"off-{index}")
        auto = training_config(options, "auto")
        one["auto"] = ours(auto, workspace, root / f"auto-{index}")
        found.append(one)
        speeds = {side: round(run[0], 2) for side, run in one.items()}
        print(f"round {index + 1}: {json.dumps(speeds)} steps/s", flush=True)
    return found


def summary(found: list[dict[str, Run]]) -> dict[str, Any]:
    """Return for each of our sides the ratio to the bare one, and how far its losses are."""
    result: dict[str, Any] = {
        "pairs": len(found),
        "bare_steps_per_second": statistics.median(one["bare"][0] for one in found),
    }
    for side in ("off", "auto"):
        ratios = sorted(one[side][0] / one["bare"][0] for one in found)
        apart = [
            abs(ours_ - bare_) / bare_
            for one in found
            for ours_, bare_ in zip(one[side][1], one["bare"][1], strict=True)
        ]
        result[side] = {
            "ratio_median": statistics.median(ratios),
            "ratio_min": ratios[0],
            "ratio_max": ratios[-1],
            "largest_relative_loss_difference": max(apart),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--method", choices=("lora", "full"), default="lora")
    parser.add_argument("--micro", type=int, default=4, help="rows of a micro batch")
    parser.add_argument("--batch", type=int, default=4, help="rows of an optimizer step")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = summary(rounds(options, Path(name)))
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['pairs']} rounds, in turn, one process; load {os.getloadavg()[0]:.1f}")
    print(f"bare Trainer           {result['bare_steps_per_second']:6.2f} steps/s (median)")
    for side, name in (("off", "performance: off "), ("auto", "performance: auto")):
        one = result[side]
        print(
            f"{name} / bare {one['ratio_median']:7.3f}"
            f" ({one['ratio_min']:.3f} - {one['ratio_max']:.3f}),"
            f" loss within {one['largest_relative_loss_difference']:.1e}"
        )


if __name__ == "__main__":
    StepClock.current = None
    main()
