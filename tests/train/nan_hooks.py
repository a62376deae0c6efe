"""A hooks file of a user whose loss is NaN in known steps, on all ranks or on one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_TEXT = """
import os
from transformers import AutoModelForCausalLM, TrainerCallback
from llmops_kernel.models.catalogue import prepare

factor = 1.0

def build_model(config):
    model = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    model.lm_head.register_forward_hook(lambda module, inputs, output: output * factor)
    return model

class Nan(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        global factor
        is_here = os.environ.get("RANK", "0") in {ranks}
        factor = float("nan") if is_here and state.global_step + 1 in {steps} else 1.0

    def on_step_end(self, args, state, control, **kwargs):
        global factor
        factor = 1.0

def callbacks():
    return [Nan()]
"""


def write_nan_hooks(workspace: Path, *, steps: Iterable[int], ranks: Iterable[int] = (0,)) -> None:
    """Write `hooks.py`: the loss of these ranks is NaN in these steps."""
    names = sorted(str(rank) for rank in ranks)
    text = _TEXT.format(ranks=names, steps=sorted(steps))
    (workspace / "hooks.py").write_text(text)
