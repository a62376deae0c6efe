"""Report a Transformers `Trainer` to the run: `Trainer(..., callbacks=[TrackCallback()])`.

Outside a run the callback does nothing. To resume a retry from its last checkpoint:
`trainer.train(resume_from_checkpoint=track.resume_checkpoint())`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from llmops_kernel import track

_NO_METRICS = ("runtime", "per_second", "epoch", "num_input_tokens_seen")
"""Ends of names that the Trainer adds to its metrics."""


_OF_STEP = ("loss", "learning_rate", "grad_norm")


class TrackCallback(TrainerCallback):
    """Reports steps, evaluations and checkpoints; saves a checkpoint and ends when asked to stop.

    Further numbers that the Trainer logs (TRL's rewards, for example) are charts of the run.

    In a run each step is logged, so that its loss is live; `every_step=False` keeps the Trainer's
    own `logging_steps`. Tokens are counted by the Trainer (`include_num_input_tokens_seen`, without
    padding), which exchanges one number between the workers a step; `count_tokens=False` leaves
    that setting as it is.
    """

    def __init__(
        self,
        *,
        every_step: bool = True,
        count_tokens: bool = True,
        sequence_length: int | None = None,
        keep: int = 2,
    ) -> None:
        self._every_step, self._count_tokens = every_step, count_tokens
        self._sequence_length, self._keep = sequence_length, keep
        self._tokens_seen = 0
        self._model: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not track.active():
            return
        if self._count_tokens and args.include_num_input_tokens_seen == "no":
            args.include_num_input_tokens_seen = "non_padding"
        self._tokens_seen = state.num_input_tokens_seen
        self._model = kwargs.get("model")
        per_worker = args.per_device_train_batch_size * args.gradient_accumulation_steps
        track.start(
            total_steps=state.max_steps,
            first_step=state.global_step + 1,
            model=self._model,
            dtype="bfloat16" if args.bf16 else "float16" if args.fp16 else None,
            global_batch_size=per_worker * args.world_size,
            sequence_length=self._sequence_length,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not track.active():
            return
        control.should_log = control.should_log or self._every_step
        if track.should_stop(step=state.global_step):
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not track.active() or not logs or "loss" not in logs:
            return
        metrics = {
            name: value
            for name, value in logs.items()
            if isinstance(value, int | float)
            and name not in _OF_STEP
            and not name.endswith(_NO_METRICS)
        }
        track.log(**metrics)
        counts = args.include_num_input_tokens_seen != "no"
        seen, self._tokens_seen = self._tokens_seen, state.num_input_tokens_seen
        track.step(
            step=state.global_step,
            loss=logs["loss"],
            learning_rate=logs.get("learning_rate"),
            grad_norm=logs.get("grad_norm"),
            epoch=state.epoch,
            total_tokens=state.num_input_tokens_seen - seen if counts else None,
            model=self._model,
        )

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        if not track.active() or not metrics:
            return
        numbers = {
            name: value
            for name, value in metrics.items()
            if isinstance(value, int | float) and not name.endswith(_NO_METRICS)
        }
        track.evaluation(numbers, step=state.global_step, duration_s=metrics.get("eval_runtime"))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not track.active():
            return
        _wait_for_other_workers()
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        track.checkpoint(path, step=state.global_step, keep=self._keep)


def _wait_for_other_workers() -> None:
    """Wait until all workers have written their parts of the checkpoint."""
    dist = sys.modules["torch.distributed"]
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
