"""NaN in logits on CPUs, at a fraction of the price.

vLLM counts the NaN of every row in every step (`count_nans_per_row` in
`vllm/v1/worker/gpu_model_runner.py`, 0.32.0). On a CPU that makes a tensor of truth values and adds
it up as integers: a tenth of a step of a small model. A row's sum says the same, as a NaN stays one
when anything is added to it (IEEE 754-2019, 6.2); only then are they counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def counted_where_found(count: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `count`, called only for logits on a CPU that have a NaN, and for those elsewhere.

    It takes logits [rows, vocabulary] and returns int32 [rows]. Infinities of both signs in a row
    also add up to NaN: then `count` decides.
    """

    def count_nans_per_row(logits: Any) -> Any:
        if logits.device.type != "cpu":
            return count(logits)
        sums = logits.sum(dim=-1)
        if bool(sums.isnan().any()):
            return count(logits)
        return sums.new_zeros(sums.shape).int()

    return count_nans_per_row
