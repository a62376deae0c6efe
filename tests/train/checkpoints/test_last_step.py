"""A single worker that runs out of memory saves its last whole step, and goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.journal.journal import FolderTail
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

HOOKS = """
from transformers import TrainerCallback


class Fail(TrainerCallback):
    # Once, in step 4: in the forward pass or after the optimizer has changed the weights.
    where = {where!r}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.state = state
        model.register_forward_hook(self.forward)

    def forward(self, model, args, output):
        if self.where == "forward" and model.training:
            self.fail()

    def on_optimizer_step(self, args, state, control, **kwargs):
        if self.where == "optimizer":
            self.fail()

    def fail(self):
        if self.state.global_step == 3 and not {mark}.exists():
            {mark}.touch()
            raise MemoryError("no room")


def callbacks():
    return [Fail()]
"""


@pytest.fixture
def config(make_config: Callable[..., Any]) -> Any:
    """Dropout draws as many numbers, so that equal losses show an equal random state."""
    return make_config(
        method={"type": "lora", "lora_dropout": 0.3},
        hooks="hooks.py",
        checkpoint={"every_steps": 2},
    )


def test_it_goes_on_as_if_nothing_had_happened(
    config: Any, workspace: Path, tmp_path: Path
) -> None:
    """An optimizer that failed may have changed some weights and others not."""
    journals = []
    for where, resumed_from in (("forward", 3), ("optimizer", 2)):
        mark = f"__import__('pathlib').Path({str(tmp_path / where)!r})"
        (workspace / "hooks.py").write_text(HOOKS.format(where=where, mark=mark))
        folder = tmp_path / f"run-{where}"
        with pytest.raises(MemoryError):
            run(config, folder, workspace)
        before = FolderTail(folder / "journal").read()
        after = run(config, folder, workspace)
        assert of(after, "start")[0].first_step == resumed_from + 1
        journals.append(losses(before) | losses(after))
    whole = losses(run(config, tmp_path / "whole", workspace))
    assert journals == [pytest.approx(whole, rel=1e-6)] * 2
