"""Steps of growing micro batches: what the model gets in each, for objectives and kinds of data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.models.catalogue import prepare

ROWS = 6
"""Of a step; two and three divide it."""
HOOKS = """\
import json
import pathlib

from transformers import TrainerCallback


class Seen(TrainerCallback):
    # The shape of each forward pass with gradients.
    def on_train_begin(self, args, state, control, model=None, **kwargs):
        model.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, model, args, inputs):
        if model.training:
            with pathlib.Path("{file}").open("a") as lines:
                lines.write(json.dumps(list(inputs["input_ids"].shape)) + chr(10))


def callbacks():
    return [Seen()]
"""
PAIRS = {"data": {"train": "pairs.jsonl"}, "objective": "dpo"}
CASES: dict[str, dict[str, Any]] = {
    "rows": {},
    "packed": {"data": {"packing": True, "max_length": 64}},
    "streamed": {"data": {"streaming": True, "max_length": 64}},
    "sorted by length": {"performance": {"group_by_length": True}},
    "pairs with an adapter": PAIRS,
    "pairs with a reference": {**PAIRS, "method": "full"},
}
_LONG = 17
"""Number of the row that is longer than all others."""


def write(folder: Path) -> None:
    folder.mkdir()
    words = [f"it is {number}" + " and more" * (20 * (number == _LONG)) for number in range(40)]
    texts = [{"prompt": "what?", "completion": text} for text in words]
    pairs = [{"prompt": "what?", "chosen": text, "rejected": "no"} for text in words]
    for name, rows in (("train", texts), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "hooks.py").write_text(HOOKS.format(file=folder / "shapes"))


@pytest.mark.parametrize("case", CASES)
def test_each_step_has_the_longest_rows(
    make_config: Callable[..., Any], tmp_path: Path, case: str
) -> None:
    from transformers import AutoTokenizer

    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.probe import Sizes, probe

    folder = tmp_path / "workspace"
    write(folder)
    config = make_config(
        training={"micro_batch_size": "auto", "global_batch_size": ROWS},
        hooks="hooks.py",
        **CASES[case],
    )
    context = WorkerContext(run_id="probe", folder=tmp_path / "run", workspace=folder)
    context.folder.mkdir()
    noted: list[tuple[int, int]] = []
    probe(config, context, Sizes([1, 2, 3, 6], 2, ROWS), lambda *sizes: noted.append(sizes))
    assert noted == [(2, 0), (2, 2), (2, 3), (2, 6)]
    shapes = [json.loads(line) for line in (folder / "shapes").read_text().splitlines()]
    sequences = 2 if "pairs" in case else 1
    # A step of one row, and two of each size; a micro batch of all rows has one pass.
    rows = [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 6, 1, 6, 1]
    assert [shape[0] for shape in shapes] == [sequences * size for size in rows]
    widths = {shape[1] for shape in shapes[:11]}
    if case == "rows":
        tokenizer: Any = AutoTokenizer.from_pretrained(str(prepare("tiny-llama")))
        chosen = json.loads((folder / "train.jsonl").read_text().splitlines()[_LONG])
        tokens = len(tokenizer(chosen["prompt"] + chosen["completion"])["input_ids"])
        assert all(tokens <= width <= tokens + 8 for width in widths)  # And the end of the answer.
    if case == "streamed":
        assert widths == {64}
    assert len(widths) == 1
    assert shapes[11][1] < max(widths) or case == "packed"
    assert not [path for path in context.folder.rglob("*") if path.is_file()]
