from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.score.engines.vllm.compat import counted_where_found

VALUES = st.sampled_from([0.0, 1.5, -2.25, 3e38, math.inf, -math.inf, math.nan])


def count(logits: torch.Tensor) -> torch.Tensor:
    return logits.isnan().sum(dim=-1, dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(rows=st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_count_is_the_same(dtype: torch.dtype, rows: list[list[float]]) -> None:
    logits = torch.tensor(rows, dtype=dtype)
    found = counted_where_found(count)(logits)
    assert found.dtype == torch.int32
    assert found.tolist() == count(logits).tolist()


def test_logits_without_nan_are_not_counted() -> None:
    def refuse(_: torch.Tensor) -> torch.Tensor:
        raise AssertionError("counted")

    # What structured outputs forbid is -inf.
    logits = torch.tensor([[1.0, -math.inf, 2.0], [0.0, -math.inf, -math.inf]])
    assert counted_where_found(refuse)(logits).tolist() == [0, 0]


def test_no_rows() -> None:
    assert counted_where_found(count)(torch.empty(0, 7)).tolist() == []
