"""Every method with every strategy that trains on CPUs: two workers, the losses of DDP.

`LLMOPS_WRITE_MATRIX=1 pytest tests/train/test_matrix.py` writes the tables of README.md here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from llmops_kernel.metrics.events import AnyEvent
from tests.train.strategy_pairs import Pairs

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]

README = Path(__file__).with_name("README.md")
STEPS = 20
TOLERANCE = 1e-3
OFFLOAD = {"offload_optimizer": "cpu", "offload_params": True}
CHECKPOINTING = {"gradient_checkpointing": True}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "ddp, checkpointing": {"strategy": "ddp", **CHECKPOINTING},
    "fsdp": {"strategy": "fsdp"},
    "fsdp, checkpointing": {"strategy": "fsdp", **CHECKPOINTING},
    "zero1": {"strategy": "zero1"},
    "zero2": {"strategy": "zero2"},
    "zero2, optimizer offloaded": {"strategy": "zero2", "offload_optimizer": "cpu"},
    "zero3": {"strategy": "zero3"},
    "zero3, all offloaded": {"strategy": "zero3", **OFFLOAD, **CHECKPOINTING},
}
METHODS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "full": ({"type": "full"}, tuple(STRATEGIES)),
    "lora": ({"type": "lora"}, tuple(STRATEGIES)),
    "lora, rsLoRA and DoRA": (
        {"type": "lora", "use_rslora": True, "use_dora": True},
        ("ddp", "fsdp", "zero1", "zero2", "zero3"),
    ),
    # Weights of 4 bits cannot be sharded: fsdp and zero3 are refused.
    "qlora": (
        {"type": "qlora"},
        ("ddp", "ddp, checkpointing", "zero1", "zero2", "zero2, optimizer offloaded"),
    ),
}
COLUMNS = ("engine", "weights", "updated weights", "trained", "attention")


@pytest.mark.parametrize("method", METHODS)
def test_every_strategy_gives_the_losses_of_ddp_and_is_what_was_asked_for(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path, method: str
) -> None:
    fields, names = METHODS[method]
    rows, reference = [], []
    for name in names:
        config = make_config(
            method=fields,
            parallelism={**STRATEGIES[name], "num_workers": 2},
            training={"micro_batch_size": 2, "global_batch_size": 8, "max_steps": STEPS},
            optimizer={"learning_rate": 2e-3},
            data={"eval": "train.jsonl", "max_eval_rows": 5},
        )
        events = pairs.events(config, tmp_path / name, workspace)
        start = next(event for event in events if event.kind == "start")
        losses = [event.loss or 0.0 for event in events if event.kind == "step"]
        reference = reference or losses
        worst = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
        steps = [event.step_time_s or 0.0 for event in events if event.kind == "step"]
        print(f"{method}, {name}: largest difference to ddp {worst:.2e}, {sum(steps):.1f} s")
        assert worst < TOLERANCE, name
        assert_saved(tmp_path / name / "output", like=tmp_path / names[0] / "output")
        assert_engine(start.verified["engine"], STRATEGIES[name])
        rows.append((name, *(start.verified[column] for column in COLUMNS), states(events)))
    assert len(reference) == STEPS
    assert reference[-1] < reference[0] - 0.3
    assert_written(method, rows)


def states(events: list[AnyEvent]) -> str:
    """Return what the first step says of the optimizer's states."""
    phases = [one for one in events if one.kind == "phase" and one.name == "first_step"]
    return phases[-1].detail.removeprefix("optimizer states ")


def assert_saved(folder: Path, *, like: Path) -> None:
    """The output has whole weights, under the names that other tools look for."""
    (file,) = like.glob("*.safetensors")
    found, wanted = load_file(folder / file.name), load_file(file)
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in wanted.items()}
    for name, value in wanted.items():
        # Adam turns noise in a tiny gradient into a step: single weights may differ by one.
        assert (found[name].float() - value.float()).abs().mean() < TOLERANCE, name


def assert_engine(words: str, asked: dict[str, Any]) -> None:
    """An engine that silently is another one would give the very same losses."""
    strategy = asked["strategy"]
    if strategy == "ddp":
        assert words == "DistributedDataParallel"
    elif strategy == "fsdp":
        assert words.endswith(", FSDP2")
    else:
        assert words.startswith(f"DeepSpeedEngine, ZeRO-{strategy[-1]}")
        assert ("optimizer states on cpu" in words) == ("offload_optimizer" in asked)


def table(rows: list[tuple[str, ...]]) -> str:
    heads = ("strategy", *COLUMNS, "optimizer states")
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def assert_written(method: str, rows: list[tuple[str, ...]]) -> None:
    text, wanted = README.read_text(), f"\n### {method}\n\n{table(rows)}"
    section = re.compile(rf"\n### {re.escape(method)}\n\n(\|.*\n)+")
    if os.environ.get("LLMOPS_WRITE_MATRIX"):
        has_section = section.search(text) is not None
        text = section.sub(lambda _: wanted, text) if has_section else text + wanted
        README.write_text(text)
    assert wanted in text, f"run with LLMOPS_WRITE_MATRIX=1, which writes {README.name}"
