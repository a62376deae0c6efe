"""Forward passes of a Transformers model over rows of different lengths."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import torch

from llmops_kernel.score.engines.transformers.loading import Loaded


class Forward:
    """Reads rows of tokens, padded on the left, so that the last token of all is at the end."""

    def __init__(self, loaded: Loaded, model: Any) -> None:
        self.loaded = loaded
        self.model = model
        # A PEFT model passes on what it gets.
        self._names = frozenset(inspect.signature(loaded.model.forward).parameters)
        self.mask = torch.empty(0)
        self._cache: Any = None

    def prefill(self, rows: Sequence[Sequence[int]], *, keep: int = 1, **options: Any) -> Any:
        """Read rows; return the model's output, with logits of the last `keep` tokens."""
        width = max(len(row) for row in rows)
        device = self.loaded.device
        ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
        self.mask = torch.tensor(
            [[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device
        )
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        return self._call(ids, positions, keep=keep, **options)

    def extend(self, ids: torch.Tensor) -> Any:
        """Read further tokens of the rows, `[rows, tokens]`; the logits are of all of them."""
        start = self.mask.sum(-1, keepdim=True)
        positions = start + torch.arange(ids.shape[1], device=ids.device)
        self.mask = torch.cat([self.mask, torch.ones_like(ids)], dim=-1)
        return self._call(ids, positions, keep=0, use_cache=True)

    def _call(self, ids: torch.Tensor, positions: torch.Tensor, keep: int, **options: Any) -> Any:
        if "position_ids" in self._names:
            options["position_ids"] = positions
        if "logits_to_keep" in self._names:
            options["logits_to_keep"] = keep
        with torch.inference_mode():
            output = self.model(
                input_ids=ids, attention_mask=self.mask, past_key_values=self._cache, **options
            )
        self._cache = getattr(output, "past_key_values", None)
        return output

    def select(self, rows: Sequence[int]) -> bool:
        """Keep only these rows; False where the model's cache cannot."""
        index = torch.tensor(rows, device=self.loaded.device)
        try:
            self._cache.batch_select_indices(index)
        except (AttributeError, NotImplementedError):
            return False
        self.mask = self.mask[index]
        return True

    def fork(self) -> Forward:
        """Return a copy that goes on from here; this one stays as it is."""
        other = copy(self)
        other._cache = deepcopy(self._cache)
        return other


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits.float(), dim=-1)
