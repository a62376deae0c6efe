"""A library's warning that it does not do what was asked for is an error."""

from __future__ import annotations

import logging
import warnings

import pytest
from transformers import AutoModelForCausalLM

from llmops_kernel.errors import ModelError
from llmops_kernel.train.model.load import check_weights, listening


def test_a_second_adapter_of_peft_is_an_error(tiny_llama: object) -> None:
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_pretrained(str(tiny_llama))
    lora = LoraConfig(r=4, target_modules=["q_proj"])
    get_peft_model(model, lora)
    with (
        pytest.raises(ModelError, match="modify a model with PEFT for a second time"),
        listening("mine"),
    ):
        get_peft_model(model, lora)


def test_a_pattern_of_peft_that_matches_nothing_is_an_error(tiny_llama: object) -> None:
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_pretrained(str(tiny_llama))
    lora = LoraConfig(r=4, target_modules=["q_proj"], rank_pattern={"k_proj": 8})
    with pytest.raises(ModelError, match="were ignored"), listening("mine"):
        get_peft_model(model, lora)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("transformers.modeling_utils", "Some weights were newly initialized: ['lm_head.weight']"),
        ("DeepSpeed", "Overlapped communication is not supported here, ignoring it"),
        ("accelerate.utils", "`x` was given and will be ignored"),
    ],
)
def test_a_refusal_in_a_librarys_log_is_an_error(name: str, text: str) -> None:
    with (
        pytest.raises(ModelError, match="does not do what was asked for with mine"),
        listening("mine"),
    ):
        logging.getLogger(name.partition(".")[0]).warning(text)


def test_other_warnings_are_shown_as_ever() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with listening("mine"):
            warnings.warn("`use_thing` is deprecated", FutureWarning, stacklevel=1)
            warnings.warn("a tied layer is part of the adapter, will be ignored", stacklevel=1)
    assert [str(one.message) for one in caught] == ["`use_thing` is deprecated"]


def test_the_loading_info_of_a_model_is_heeded() -> None:
    assert check_weights("m", {"missing_keys": set(), "unexpected_keys": set()}) == ""
    assert "2 weights of its files" in check_weights("m", {"unexpected_keys": {"b", "a"}})
    with pytest.raises(ModelError, match="would be random: a is not in its files"):
        check_weights("m", {"missing_keys": {"a"}})
    with pytest.raises(ModelError, match="another shape"):
        check_weights("m", {"mismatched_keys": {("a", (1,), (2,))}})
