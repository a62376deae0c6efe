"""Saves the last whole step of a single worker that runs out of memory in the next one."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.failures import is_out_of_memory

_EVALUATE = "llmops_evaluate"
"""File of a checkpoint that was saved before the evaluation after its step."""


class LastStep(TrainerCallback):
    """Knows after which step the weights are whole, and the random state that they had then."""

    def __init__(self) -> None:
        self.step = 0
        """Last step whose weights, optimizer states and journal are whole; 0: none is."""
        self._random: tuple[Any, ...] = ()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer changes one weight after the other."""
        self.step = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The step is in the journal; added last, this comes after the callback that wrote it."""
        if logs and "loss" in logs:
            self.step = state.global_step
            devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
            states = random.getstate(), np.random.get_state(), torch.get_rng_state(), devices
            self._random = states

    def restore_random_state(self) -> None:
        """Set the random state after the step, which the one that failed has moved on from."""
        python, numpy, cpu, devices = self._random
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)


@contextmanager
def saved_when_out_of_memory(trainer: Any, context: WorkerContext) -> Iterator[None]:
    """Save a checkpoint of the last whole step if the body runs out of memory, and raise on.

    Of a single worker, which need not wait for others: those of several have lost the rank that
    failed. DeepSpeed's engine does not say when it begins to change weights. Without a checkpoint
    the run goes on from the one before.
    """
    last = LastStep()
    trainer.add_callback(last)
    try:
        yield
    except BaseException as error:
        can_save = context.world_size == 1 and not trainer.is_deepspeed_enabled
        if can_save and last.step and is_out_of_memory(error):
            _release(trainer, error)
            # Whatever is wrong with it, it is not marked complete then, and the error is raised.
            with suppress(Exception):
                _save(trainer, last, is_in_evaluation=context.in_phase == "evaluate")
        raise


def _release(trainer: Any, error: BaseException) -> None:
    """Free activations, which the frames of the error hold, and gradients."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    trainer.model.zero_grad(set_to_none=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _save(trainer: Any, last: LastStep, *, is_in_evaluation: bool) -> None:
    path = Path(trainer.args.output_dir) / f"checkpoint-{last.step}"
    if trainer.state.global_step != last.step or path.exists():
        return
    last.restore_random_state()
    trainer._save_checkpoint(trainer.model, None)
    if is_in_evaluation:
        (path / _EVALUATE).touch()
    trainer.callback_handler.on_save(trainer.args, trainer.state, trainer.control)


def is_before_evaluation(checkpoint: Path | None) -> bool:
    """Return whether the evaluation after the checkpoint's step is still to be made."""
    return checkpoint is not None and (checkpoint / _EVALUATE).exists()
