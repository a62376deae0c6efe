"""Padding, and the counts that MFU is built on."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from llmops_kernel.errors import ModelError
from llmops_kernel.train.data.collate import COUNTS, Collator
from llmops_kernel.train.data.examples import IGNORED, Example, pack
from llmops_kernel.train.model.tokenizer import too_large


def test_padding_is_masked_ignored_and_not_counted() -> None:
    batch = Collator(pad_token_id=9)([Example([1, 2, 3], [IGNORED, 2, 3]), Example([4], [4])])
    assert batch["input_ids"].shape == (2, 8)
    assert batch["attention_mask"].sum() == 4
    assert (batch["labels"][1, 1:] == IGNORED).all()
    assert batch[COUNTS].tolist() == [[3, 9, 3], [1, 1, 1]]


def test_a_pack_counts_each_row_squared_not_the_pack() -> None:
    packed = pack([Example([1] * 3, [1] * 3), Example([2] * 4, [2] * 4)], max_length=8)
    batch = Collator(pad_token_id=0)(packed)
    assert batch[COUNTS].tolist() == [[7, 9 + 16, 7]]
    assert "attention_mask" not in batch


def test_a_packed_row_computes_as_if_it_were_alone(tiny_llama: Any) -> None:
    """The model's own logits decide whether attention stays inside each packed row."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(tiny_llama), dtype=torch.float32).eval()
    first = Example([5, 6, 7, 8, 9], [5, 6, 7, 8, 9])
    second = Example([11, 12, 13], [11, 12, 13])
    packed = Collator(pad_token_id=256)(pack([first, second], max_length=16))
    alone = Collator(pad_token_id=256)([second])
    model.config.use_cache = False  # as in training; a cache turns packing off
    with torch.no_grad():
        together = model(input_ids=packed["input_ids"], position_ids=packed["position_ids"]).logits[
            0, 5:8
        ]
        single = model(input_ids=alone["input_ids"], attention_mask=alone["attention_mask"]).logits[
            0, :3
        ]
    torch.testing.assert_close(together, single, atol=1e-4, rtol=1e-4)


def test_a_token_without_an_embedding_is_an_error_with_its_text(tokenizer: Any) -> None:
    """The model would raise an IndexError, on a GPU a device assert that ends the process."""
    check = partial(too_large, tokenizer, 259)
    collator = Collator(pad_token_id=0, too_large=check, vocabulary=259)
    assert collator([Example([1, 258], [1, 258])])["input_ids"].shape == (1, 8)
    with pytest.raises(ModelError, match=r"<\|user\|> is 259, and there are 259 embeddings \(261"):
        collator([Example([1], [1]), Example([1, 259], [1, 259])])
    assert too_large(tokenizer, 257)  # Its end of an answer is 257, which each row has.
    assert too_large(tokenizer, 258) is None
