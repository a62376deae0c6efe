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
    that returns the language model inside it; default the module itself. `flops`: a function of
    the batch that returns the FLOPs that the model needs for it, forward and backward; for modules
    that are no language model, of which MFU is else unknown.
    """

    def __init__(
        self,
        *,
        tokens: Callable[[Any], int] | None = None,
        model: Callable[[Any], Any] = lambda module: module,
        sequence_length: int | None = None,
        keep: int = 2,
        flops: Callable[[Any], float] | None = None,
    ) -> None:
        self._counts = {"total_tokens": tokens, "flops": flops}
        self._find_model = model
        self._sequence_length, self._keep = sequence_length, keep
        self._sums = dict.fromkeys(self._counts, 0.0)
        """Of this worker, since the last step."""
        self._step = 0
        self._saved = ""
        self._validated: set[str] = set()
        """Names that only a validation has logged."""
        self._trained: set[str] = set()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not track.active():
            return
        total = trainer.estimated_stepping_batches
        self._step = trainer.global_step
        self._sums = dict.fromkeys(self._counts, 0.0)
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
        for name, count in self._counts.items():
            self._sums[name] += count(batch) if count else 0
        if trainer.global_step == self._step:
            return  # Gradients are accumulated; the optimizer has made no step.
        self._step = trainer.global_step
        track.log(**self._logged(trainer))
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        track.step(
            step=self._step,
            learning_rate=_learning_rate(trainer),
            epoch=float(trainer.current_epoch),
            **self._of_all_workers(trainer, loss),
        )
        self._sums = dict.fromkeys(self._counts, 0.0)
        self._report_checkpoint(trainer)
        if track.should_stop(step=self._step):
            self._stop(trainer)

    def _logged(self, trainer: Any) -> dict[str, float]:
        metrics = trainer.callback_metrics
        self._trained |= metrics.keys() - self._validated
        return {name: float(metrics[name]) for name in metrics.keys() & self._trained}

    def _of_all_workers(self, trainer: Any, loss: Any) -> dict[str, Any]:
        """Return the mean loss and the sums of what is counted; all call this in the same step."""
        torch = sys.modules["torch"]
        known = {name: self._sums[name] for name, count in self._counts.items() if count}
        if trainer.world_size == 1:
            return {"loss": loss, **known}
        mine = [float("nan") if loss is None else float(loss), *known.values()]
        each = torch.tensor(mine, dtype=torch.float64, device=trainer.strategy.root_device)
        total, *sums = trainer.strategy.reduce(each, reduce_op="sum").tolist()
        mean = None if loss is None else total / trainer.world_size
        return {"loss": mean, **dict(zip(known, sums, strict=True))}

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
