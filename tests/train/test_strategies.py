"""Two workers: bfloat16, NaN on one of them, and what is found before the first step."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST
from llmops_kernel.store.journal.journal import FolderTail
from tests.train.nan_hooks import write_nan_hooks
from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]


@pytest.mark.parametrize("method", ["full", "lora"])
def test_bfloat16_stays_close_to_float32_whose_weights_and_states_are_updated(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path, method: str
) -> None:
    """AdamW in bfloat16 would lose each update below a 256th of its weight."""

    def train(strategy: str, dtype: str) -> list[AnyEvent]:
        config = make_config(
            model={"id": "tiny-llama", "dtype": dtype},
            method=method,
            parallelism={"strategy": strategy, "num_workers": 2},
            training={"max_steps": 5},
        )
        return pairs.events(config, tmp_path / f"{strategy}-{dtype}", workspace)

    # The losses of the other strategies in float32 are those of DDP (test_matrix.py).
    wanted = losses(train("ddp", "float32"))
    for strategy in ("ddp", "fsdp", "zero1", "zero2", "zero3"):
        events = train(strategy, "bfloat16")
        assert losses(events) == pytest.approx(wanted, rel=0.02), strategy
        start = of(events, "start")[-1]
        assert (start.dtype, start.verified["updated weights"]) == ("bfloat16", "float32")
        first = [phase for phase in of(events, "phase") if phase.name == "first_step"]
        assert first[-1].detail == "optimizer states float32", strategy


def test_an_engine_that_is_not_the_one_asked_for_stops_the_run_before_its_first_step(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path
) -> None:
    config = make_config(method="full", parallelism={"strategy": "zero2", "num_workers": 2})
    folder = tmp_path / "replaced"
    # With this variable Accelerate leaves DeepSpeed out, without a word.
    codes = pairs.run(config, folder, workspace, env={"ACCELERATE_USE_CPU": "true"})
    assert codes == [1, 1]
    log = (folder / "0.log").read_text()
    assert (
        "The run would not train as its config says: zero2 was asked for, and"
        " DistributedDataParallel would train without DeepSpeed." in log
    )
    assert not [e for e in FolderTail(folder / "journal").read() if e.kind in ("start", "step")]


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
        assert "DivergedError: The loss is nan at step 3. The batch: rank 1, micro batch" in log
    steps = [e for e in FolderTail(tmp_path / "stop" / "journal").read() if e.kind == "step"]
    assert [math.isnan(step.loss or 0.0) for step in steps] == [False, False, True]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero2", "zero3"])
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
    _, found = pairs.train(config, tmp_path / strategy, workspace)
    assert [math.isnan(loss) for loss in found] == [False, False, True, False, False, False]
    assert found[-1] < found[0]


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_sharded_weights_answer_whether_packed_rows_stay_apart(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path, strategy: str
) -> None:
    config = make_config(
        method="full",
        data={"packing": True, "max_length": 256},
        parallelism={"strategy": strategy, "num_workers": 2},
        training={"max_steps": 1},
    )
    events = pairs.events(config, tmp_path / strategy, workspace)
    start, *_ = of(events, "start")
    assert start.verified["packing"] == "on, rows do not attend to each other"


MIXTURE = """
import torch
from transformers import MixtralConfig, MixtralForCausalLM

def build_model(config):
    torch.manual_seed(0)
    sizes = dict(vocab_size=261, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=8)
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads, pad_token_id=0))
    for layer in model.model.layers:  # Routers that prefer some experts.
        layer.mlp.gate.weight.data.normal_().mul_(torch.linspace(0.1, 2.0, 8)[:, None])
    return model
"""


def test_the_load_of_experts_is_that_of_all_workers(
    pairs: Pairs, make_config: Callable[..., Any], workspace: Path, tmp_path: Path
) -> None:
    """In the first step one worker, which sees the rows of both, sends the same tokens.

    The two have a share of each weight: none has the shape by which experts are found.
    """
    (workspace / "hooks.py").write_text(MIXTURE)
    loads = []
    for name, workers in (("ddp", 1), ("zero3", 2)):
        config = make_config(
            method="full",
            hooks="hooks.py",
            performance="off",
            parallelism={"strategy": name, "num_workers": workers},
            training={"max_steps": 2},
        )
        train = pairs.events if workers == 2 else run
        events = train(config, tmp_path / str(workers), workspace)
        loads.append([event.values for event in of(events, "step")])
    alone, both = loads
    assert both[0] == pytest.approx(alone[0])
    for values in (*alone, *both):
        assert values.keys() == {LOAD, WORST, IDLE}
        assert 1.2 < values[LOAD] <= values[WORST] <= 4
