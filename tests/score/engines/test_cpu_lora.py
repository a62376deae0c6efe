"""LoRA by groups of tokens equals LoRA token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.score.engines.vllm.compat import grouped, groups_of

SLOTS, RANK, WIDE, SLICES = 3, 4, 5, (6, 2)


class Metadata:
    """What vLLM's wrapper does before: it knows each token's adapter after `update_metadata`."""

    def update_metadata(self, indices: torch.Tensor) -> None:
        self.token_lora_indices = indices


def _weights(seed: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    made = torch.Generator().manual_seed(seed)
    a = tuple(torch.randn(SLOTS, 1, RANK, WIDE, generator=made) for _ in SLICES)
    b = tuple(torch.randn(SLOTS, 1, width, RANK, generator=made) for width in SLICES)
    return a, b


def _token_by_token(
    y: torch.Tensor, x: torch.Tensor, indices: list[int], a: Any, b: Any, scale: float
) -> torch.Tensor:
    wanted = y.clone()
    for token, slot in enumerate(indices):
        begin = 0
        for one, other, width in zip(a, b, SLICES, strict=True):
            if slot >= 0:
                delta = scale * (other[slot, 0] @ (one[slot, 0] @ x[token]))
                wanted[token, begin : begin + width] += delta
            begin += width
    return wanted


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=12),
    st.integers(0, 99),
    st.sampled_from([1.0, 0.5]),
)
def test_the_same_as_token_by_token(indices: list[int], seed: int, scale: float) -> None:
    a, b = _weights(seed)
    x = torch.randn(len(indices), WIDE, generator=torch.Generator().manual_seed(seed + 1))
    y = torch.randn(len(indices), sum(SLICES), generator=torch.Generator().manual_seed(seed + 2))
    wanted = _token_by_token(y, x, indices, a, b, scale)
    wrapper = grouped(Metadata)()
    wrapper.update_metadata(torch.tensor(indices))
    wrapper.add_lora_linear(y, x, a, b, scale, SLICES)
    torch.testing.assert_close(y, wanted)


def test_tokens_without_an_adapter_are_not_changed() -> None:
    a, b = _weights(0)
    y = torch.zeros(2, sum(SLICES))
    wrapper = grouped(Metadata)()
    wrapper.update_metadata(torch.tensor([-1, -1]))
    wrapper.add_lora_linear(y, torch.ones(2, WIDE), a, b, 1.0, SLICES)
    assert not y.any()


def test_the_model_s_type_is_kept() -> None:
    a, b = _weights(3)
    y = torch.zeros(2, sum(SLICES), dtype=torch.bfloat16)
    x = torch.ones(2, WIDE, dtype=torch.bfloat16)
    a16, b16 = (tuple(one.bfloat16() for one in many) for many in (a, b))
    wrapper = grouped(Metadata)()
    wrapper.update_metadata(torch.tensor([1, 1]))
    wrapper.add_lora_linear(y, x, a16, b16, 1.0, SLICES)
    wanted = _token_by_token(torch.zeros(2, sum(SLICES)), x.float(), [1, 1], a, b, 1.0)
    torch.testing.assert_close(y.float(), wanted, rtol=0.03, atol=0.1)


@pytest.mark.parametrize(
    ("indices", "found"),
    [
        ([0, 0, 0], [(0, slice(0, 3))]),
        ([-1, 2, 2, 0], [(0, slice(3, 4)), (2, slice(1, 3))]),
        ([-1, -1], []),
        ([], []),
    ],
)
def test_groups(indices: list[int], found: list[tuple[int, slice]]) -> None:
    assert groups_of(torch.tensor(indices, dtype=torch.int64)) == found


def test_a_group_in_pieces_is_named_by_its_tokens() -> None:
    ((_, tokens), _) = groups_of(torch.tensor([1, 2, 1]))
    assert tokens.tolist() == [0, 2]
