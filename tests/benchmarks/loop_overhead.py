"""Our worker loop against a bare Transformers Trainer, and the journal's own cost per step.

    python -m tests.benchmarks.loop_overhead [--pairs 7] [--steps 40]

Both sides train the same model on the same batches in one process, in turn (bare, ours, bare,
ours ...), so that a machine that speeds up or slows down does so for both. The figure is the
median over the pairs of the ratio of steps per second. A step's clock runs from the end of the
third step to the end of the last one: compilation and caches are warm by then.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

_WARM_STEPS = 3
_SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 261,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "pad_token_id": 256,
    "eos_token_id": 257,
}
# The hooks file of our side: the same model as the bare side's, and the same clock.
_HOOKS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from tests.benchmarks.loop_overhead import StepClock, new_model

def build_model(config):
    return new_model()

def callbacks():
    return [StepClock.shared()]
"""


def new_model() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**_SHAPE))


def clock_class() -> Any:
    from transformers import TrainerCallback

    class _Clock(TrainerCallback):
        """Notes when each step has ended: the last callback's word on both sides."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.ends.append(time.perf_counter())

        def steps_per_second(self) -> float:
            ends = self.ends[_WARM_STEPS - 1 :]
            return (len(ends) - 1) / (ends[-1] - ends[0])

    return _Clock


class StepClock:
    """Where both sides find the clock of the run that is going on."""

    current: Any = None

    @classmethod
    def shared(cls) -> Any:
        # The hooks file imports this module by its own name, beside `__main__`.
        import tests.benchmarks.loop_overhead as module

        return module.StepClock.current


def _start_clock() -> Any:
    import tests.benchmarks.loop_overhead as module

    module.StepClock.current = clock_class()()
    return module.StepClock.current


def bare(rows: list[dict[str, str]], folder: Path, steps: int) -> float:
    """What a user would write without us; steps per second."""
    from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed

    from llmops_kernel.models.catalogue import prepare

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(str(prepare("tiny-llama")))
    clock, model = _start_clock(), new_model()
    model.config.use_cache = False
    Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            per_device_train_batch_size=4,
            max_steps=steps,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        ),
        train_dataset=[tokenizer(row["text"] + tokenizer.eos_token)["input_ids"] for row in rows],
        data_collator=_collate,
        callbacks=[clock],
    ).train()
    return float(clock.steps_per_second())


def _collate(batch: list[list[int]]) -> dict[str, Any]:
    import torch

    width = -(-max(map(len, batch)) // 8) * 8
    return {
        "input_ids": torch.tensor([[*row, *[256] * (width - len(row))] for row in batch]),
        "labels": torch.tensor([[*row, *[-100] * (width - len(row))] for row in batch]),
        "attention_mask": torch.tensor([[*[1] * len(r), *[0] * (width - len(r))] for r in batch]),
    }


def ours(workspace: Path, folder: Path, steps: int) -> float:
    """The same training through our worker loop, journal and all; steps per second."""
    from llmops_kernel.config.models.train import TrainingConfig
    from llmops_kernel.store.journal.journal import JournalWriter
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train

    config = TrainingConfig.model_validate(
        {
            "model": "tiny-llama",
            "data": {"train": "rows.jsonl"},
            "method": "full",
            "parallelism": "ddp",
            "training": {"micro_batch_size": 4, "global_batch_size": 4, "max_steps": steps},
            "optimizer": {"learning_rate": 1e-3},
            "performance": "off",  # equal settings: what a bare Trainer does
            "hooks": "hooks.py",
        }
    )
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    clock = _start_clock()
    train(
        config,
        WorkerContext(run_id="bench", folder=folder, workspace=workspace, journal=journal),
    )
    journal.close()
    return float(clock.steps_per_second())


def journal_cost_s(folder: Path, count: int = 2000) -> float:
    """Seconds that numbering, stamping and writing one step event take, to two folders."""
    from llmops_kernel.metrics.events import StepEvent
    from llmops_kernel.store.journal.journal import JournalWriter

    journal = JournalWriter([folder / "a", folder / "b"], stream="1-worker-1", attempt=1)
    times = []
    for step in range(1, count + 1):
        begin = time.perf_counter()
        journal.emit(
            StepEvent(
                step=step,
                epoch=0.5,
                loss=1.2345,
                learning_rate=1e-4,
                grad_norm=0.9,
                step_time_s=0.05,
                data_wait_s=0.001,
                compute_s=0.049,
                tokens=2048,
                tokens_per_second=40960.0,
                flops=1e12,
                mfu=0.4,
                host_memory_bytes=10**9,
            )
        )
        times.append(time.perf_counter() - begin)
    journal.close()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows = [{"text": f"row {i}: " + "the quick brown fox " * (5 + i % 3)} for i in range(256)]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (root / "hooks.py").write_text(_HOOKS)
        pairs = []
        for index in range(options.pairs + 1):
            one = bare(rows, root / f"bare-{index}", options.steps)
            other = ours(root, root / f"ours-{index}", options.steps)
            if index:  # the first pair warms the process up
                pairs.append((one, other))
        cost_s = journal_cost_s(root / "journal")
    _report(pairs, cost_s, as_json=options.json)


def _report(pairs: list[tuple[float, float]], cost_s: float, *, as_json: bool) -> None:
    ratios = sorted(other / one for one, other in pairs)
    result = {
        "pairs": len(pairs),
        "bare_steps_per_second": statistics.median(one for one, _ in pairs),
        "ours_steps_per_second": statistics.median(other for _, other in pairs),
        "ratio_median": statistics.median(ratios),
        "ratio_min": ratios[0],
        "ratio_max": ratios[-1],
        "journal_cost_s": cost_s,
        "journal_share_of_50_ms_step": cost_s / 0.05,
    }
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['pairs']} pairs, in turn, one process")
    print(f"bare Trainer  {result['bare_steps_per_second']:8.2f} steps/s (median)")
    print(f"worker loop   {result['ours_steps_per_second']:8.2f} steps/s (median)")
    print(f"ours / bare   {result['ratio_median']:8.3f} ({ratios[0]:.3f} - {ratios[-1]:.3f})")
    print(f"journal       {cost_s * 1e6:8.1f} us a step = {cost_s / 0.05:.3%} of a 50 ms step")


if __name__ == "__main__":
    main()
