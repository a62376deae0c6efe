"""Transformers' Trainer with our counting, our evaluation and no FLOP guess of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import Trainer

from llmops_kernel.train.meter import StepMeter


class LoopTrainer(Trainer):
    """Overrides three seams of Transformers 5.23's Trainer; everything else is upstream's."""

    def __init__(
        self,
        *args: Any,
        meter: StepMeter,
        evaluate_with: Callable[[Any, int], dict[str, float]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._meter = meter
        self._evaluate_with = evaluate_with

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> Any:
        """As upstream's, with the wait for data measured and the token counts taken out."""
        return super().get_batch_samples(self._meter.timed(epoch_iterator), num_batches, device)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not used: upstream counts padding, frozen weights as trained, and no attention.

        It also walks over all parameters at each micro batch.
        """
        return 0

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Our token-weighted evaluation in the place of upstream's mean of batch means."""
        if self._evaluate_with is None:
            return {}
        metrics = self._evaluate_with(self.model_wrapped, self.state.global_step)
        self._meter.mark()
        return metrics
