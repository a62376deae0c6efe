"""Two workers train on each row once, as one worker does, also where the rows do not divide."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail
from tests.train.conftest import rows
from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import MIXTURE, losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]

COUNT, MICRO, GLOBAL, EPOCHS, RATE = 13, 2, 8, 2, 1e-3
Config = Callable[..., Any]

KILL = """
import os, signal
from transformers import TrainerCallback

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == int(os.environ.get("KILL_AT", 0)) and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks():
    return [Kill()]
"""


@pytest.fixture
def thirteen(workspace: Path) -> Path:
    write(workspace, COUNT)
    return workspace


def write(workspace: Path, count: int) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows(count))
    (workspace / "train.jsonl").write_text(text)


def settings(strategy: str = "ddp", *, workers: int = 2, **sections: Any) -> dict[str, Any]:
    training = {"micro_batch_size": MICRO, "global_batch_size": GLOBAL, "max_steps": None}
    return {
        "method": "full",
        "parallelism": {"strategy": strategy, "num_workers": workers},
        "training": {**training, "num_epochs": EPOCHS},
        "optimizer": {"learning_rate": RATE, "lr_scheduler_type": "constant"},
        **sections,
    }


@pytest.fixture(scope="module")
def alone(
    make_config: Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], list[AnyEvent]]:
    """Train one worker on so many rows, once for all tests; return its journal."""

    @functools.cache
    def train(count: int) -> list[AnyEvent]:
        folder = tmp_path_factory.mktemp("alone")
        write(folder, count)
        return run(make_config(**settings(workers=1)), folder / "run", folder)

    return train


def steps_of(events: list[Any]) -> list[tuple[float, int]]:
    return [(event.loss, event.tokens) for event in of(events, "step")]


def plain_torch(workspace: Path, model_path: Path) -> list[tuple[float, int]]:
    """Return loss and tokens of each step, by a loop that knows neither Trainer nor workers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model_path))
    model = AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    found = []
    lines = [json.loads(line) for line in (workspace / "train.jsonl").open()]
    for _ in range(EPOCHS):
        for first in range(0, len(lines), GLOBAL):
            summed, labels, tokens = torch.zeros(()), 0, 0
            for row in lines[first : first + GLOBAL]:
                asked = [{"role": "user", "content": row["prompt"]}]
                whole = [*asked, {"role": "assistant", "content": row["completion"]}]
                prompt = tokenizer.apply_chat_template(
                    asked, tokenize=False, add_generation_prompt=True
                )
                text = tokenizer.apply_chat_template(whole, tokenize=False)
                begin = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
                ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
                logits = model(input_ids=ids).logits[0, begin - 1 : -1]
                summed = summed + torch.nn.functional.cross_entropy(
                    logits, ids[0, begin:], reduction="sum"
                )
                labels += ids.shape[1] - begin
                tokens += ids.shape[1]
            loss = summed / labels
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found.append((loss.item(), tokens))
    return found


def assert_equal(found: list[tuple[float, int]], wanted: list[tuple[float, int]]) -> None:
    assert [tokens for _, tokens in found] == [tokens for _, tokens in wanted]
    assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in wanted], rel=1e-4)


def test_steps_are_those_of_a_plain_loop_whether_one_worker_trains_or_two(
    pairs: Pairs, make_config: Config, thirteen: Path, tmp_path: Path, tiny_llama: Path
) -> None:
    """13 rows, 8 in a step: the last step has 5, of which the workers have 4 and 1."""
    wanted = plain_torch(thirteen, tiny_llama)
    assert len(wanted) == 4
    data = {"train": "train.jsonl", "shuffle": False}
    one = make_config(**settings(workers=1, data=data))
    assert_equal(steps_of(run(one, tmp_path / "one", thirteen)), wanted)
    two = make_config(**settings(data=data))
    assert_equal(steps_of(pairs.events(two, tmp_path / "two", thirteen)), wanted)


@pytest.mark.parametrize(
    ("strategy", "count"),
    [("fsdp", COUNT), ("zero2", COUNT), ("fsdp", 2), ("zero1", 2), ("zero3", 2)],
)
def test_every_strategy_trains_on_each_row_once(
    pairs: Pairs,
    make_config: Config,
    workspace: Path,
    tmp_path: Path,
    alone: Callable[[int], list[AnyEvent]],
    strategy: str,
    count: int,
) -> None:
    """Shuffled; of 2 rows one worker has both, and the other none but blank ones in each step."""
    write(workspace, count)
    two = make_config(**settings(strategy))
    found = steps_of(pairs.events(two, tmp_path / "two", workspace))
    assert_equal(found, steps_of(alone(count)))


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"packing": True, "max_length": 96}},
        {"performance": {"padding_free": True}},
        {"data": {"train": MIXTURE}},
        {"method": "lora"},
    ],
    ids=["packed", "padding-free", "mixture", "lora"],
)
def test_each_kind_of_rows_is_trained_on_once(
    pairs: Pairs, make_config: Config, workspace: Path, tmp_path: Path, sections: dict[str, Any]
) -> None:
    write(workspace, 39 if "packing" in sections.get("data", {}) else 52)
    found = []
    for workers, train in ((1, run), (2, pairs.events)):
        config = make_config(**settings(workers=workers, **sections))
        found.append(steps_of(train(config, tmp_path / str(workers), workspace)))
    assert_equal(found[1], found[0])


def test_an_order_of_the_users_own_has_each_row_once(
    pairs: Pairs, make_config: Config, thirteen: Path, tmp_path: Path
) -> None:
    """Another generator of the order, which one worker and two begin at another place."""
    own = {"accelerator_config": {"use_seedable_sampler": False}}
    events = pairs.events(
        make_config(**settings(training_arguments=own)), tmp_path / "two", thirteen
    )
    tokens = [event.tokens for event in of(events, "step")]
    assert len(tokens) == 2 * EPOCHS
    assert sum(tokens) == EPOCHS * of(events, "start")[0].num_tokens


def test_a_killed_worker_changes_nothing_of_it(
    pairs: Pairs,
    make_config: Config,
    thirteen: Path,
    tmp_path: Path,
    alone: Callable[[int], list[AnyEvent]],
) -> None:
    """The checkpoint is that of the third step: in the second epoch, before its blank rows."""
    (thirteen / "hooks.py").write_text(KILL)
    config = make_config(**settings(checkpoint={"every_steps": 3}, hooks="hooks.py"))
    folder = tmp_path / "two"
    assert pairs.run(config, folder, thirteen, env={"KILL_AT": "4"})[1] == -9
    assert pairs.run(config, folder, thirteen, env={"KILL_AT": "0"}, attempt=2) == [0, 0]
    events = FolderTail(folder / "journal").read()
    assert [event.first_step for event in of(events, "start")][-1] == 4
    assert losses(events) == pytest.approx(losses(alone(COUNT)), rel=1e-4)


def test_an_evaluation_counts_each_row_once(
    pairs: Pairs, make_config: Config, thirteen: Path, tmp_path: Path
) -> None:
    evaluation = {"at_start": True, "at_end": False}
    found = []
    for workers, train in ((1, run), (2, pairs.events)):
        data = {"train": "train.jsonl", "eval": "train.jsonl", "max_eval_rows": 5}
        config = make_config(**settings(workers=workers, data=data, evaluation=evaluation))
        (event,) = of(train(config, tmp_path / str(workers), thirteen), "eval")
        found.append((event.num_rows, event.metrics["eval_loss"]))
    assert found[1][0] == found[0][0] == 5
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-6)


OWN_LOSS = """
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from llmops_kernel.models.catalogue import prepare

class Own(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, labels=None):
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)

def build_model(config):
    return Own.from_pretrained(str(prepare("tiny-llama")))
"""


def test_a_model_that_divides_its_loss_itself_repeats_rows_and_the_run_says_so(
    pairs: Pairs, make_config: Config, thirteen: Path, tmp_path: Path
) -> None:
    (thirteen / "hooks.py").write_text(OWN_LOSS)
    sections = settings(hooks="hooks.py", performance="off")
    events = pairs.events(make_config(**sections), tmp_path / "two", thirteen)
    repeated, not_compared = [warning.message for warning in of(events, "warning")]
    assert repeated.startswith(
        "Each epoch trains on 3 rows twice, so that all workers have as many"
    )
    assert "the hook build_model made the model" in not_compared
    assert all(loss > 0 for loss in losses(events).values())
