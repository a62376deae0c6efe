"""Report a Lightning `Trainer` to the run: `Trainer(..., callbacks=[TrackCallback()])`.

For `lightning` and for `pytorch_lightning`. Outside a run the callback does nothing. To resume a
retry from its last checkpoint: `trainer.fit(model, ckpt_path=track.resume_checkpoint())`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from llmops_kernel import track


def _callback_class() -> Any:
    """Return the Callback of the package that the script uses; both define their own."""
    old = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    return import_module("pytorch_lightning" if old else "lightning.pytorch").Callback


class TrackCallback(_callback_class()):  # type: ignore[misc]
    """Reports steps, validations and checkpoints; saves a checkpoint and ends when asked to stop.

    What a module logs in its training step (`self.log("accuracy", ...)`) are charts of the run. It
    needs no logger: Lightning calls its loggers later and only each `log_every_n_steps` steps.

    `tokens`: a function of the batch that returns how many tokens it has, padding not counted;
    without it tokens per second and MFU stay unknown. `model`: a function of the LightningModule
    that returns the language model inside it; default the module itself.
    """

    def __init__(
        self,
        *,
        tokens: Callable[[Any], int] | None = None,
        model: Callable[[Any], Any] = lambda module: module,
        sequence_length: int | None = None,
        keep: int = 2,
    ) -> None:
        self._count, self._find_model = tokens, model
        self._sequence_length, self._keep = sequence_length, keep
        self._tokens = 0
        self._step = 0
        self._saved = ""
        self._validated: set[str] = set()
        """Names that only a validation has logged."""
        self._trained: set[str] = set()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not track.active():
            return
        total = trainer.estimated_stepping_batches
        self._step, self._tokens = trainer.global_step, 0
        track.start(
            total_steps=int(total) if total != float("inf") else None,
            first_step=trainer.global_step + 1,
            model=self._find_model(pl_module),
            dtype=_dtype(str(trainer.precision)),
            sequence_length=self._sequence_length,
        )

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not track.active():
            return
        self._tokens += self._count(batch) if self._count else 0
        if trainer.global_step == self._step:
            return  # Gradients are accumulated; the optimizer has made no step.
        self._step = trainer.global_step
        track.log(**self._logged(trainer))
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        track.step(
            step=self._step,
            loss=loss,
            learning_rate=_learning_rate(trainer),
            epoch=float(trainer.current_epoch),
            total_tokens=self._all_tokens(trainer),
        )
        self._tokens = 0
        self._report_checkpoint(trainer)
        if track.should_stop(step=self._step):
            self._stop(trainer)

    def _logged(self, trainer: Any) -> dict[str, float]:
        metrics = trainer.callback_metrics
        self._trained |= metrics.keys() - self._validated
        return {name: float(metrics[name]) for name in metrics.keys() & self._trained}

    def _all_tokens(self, trainer: Any) -> int | None:
        """Sum over the workers; every worker calls this in the same step."""
        if self._count is None:
            return None
        if trainer.world_size == 1:
            return self._tokens
        torch = sys.modules["torch"]
        tokens = torch.tensor(self._tokens, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(tokens, reduce_op="sum"))

    def _stop(self, trainer: Any) -> None:
        """Save on all workers, as Lightning asks for, and leave after this batch."""
        folder = Path(trainer.default_root_dir or tempfile.gettempdir())
        path = folder / "llmops-stop.ckpt"
        trainer.save_checkpoint(path)
        track.checkpoint(path, step=self._step, keep=self._keep)
        trainer.should_stop = True

    def _report_checkpoint(self, trainer: Any) -> None:
        for callback in trainer.checkpoint_callbacks:
            path = getattr(callback, "last_model_path", "") or getattr(
                callback, "best_model_path", ""
            )
            if path and path != self._saved and Path(path).exists():
                self._saved = path
                track.checkpoint(path, step=self._step, keep=self._keep)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not track.active():
            return
        self._validated |= trainer.callback_metrics.keys() - self._trained
        if trainer.sanity_checking:
            return
        callback_metrics = trainer.callback_metrics
        metrics = {
            name: float(callback_metrics[name])
            for name in callback_metrics.keys() & self._validated
        }
        track.evaluation(metrics, step=trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if track.active():
            self._report_checkpoint(trainer)


def _learning_rate(trainer: Any) -> float | None:
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return float(groups[0]["lr"]) if groups else None


def _dtype(precision: str) -> str | None:
    """Return bfloat16 for `bf16-mixed`; None for full precision, which the weights' dtype shows."""
    if precision.startswith("bf16"):
        return "bfloat16"
    return "float16" if precision.startswith("16") else None
