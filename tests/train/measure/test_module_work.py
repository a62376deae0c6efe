"""FLOPs counted from the modules, against PyTorch's counter and numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from llmops_kernel.metrics.flops import ModelShape, lora_adapters, training_flops
from llmops_kernel.metrics.model_work import (
    EAGER,
    Computed,
    ModelWork,
    executed_flops,
    palm_flops,
    required_flops,
)
from llmops_kernel.train.measure.module_work import UncountableError, count_work
from llmops_kernel.train.measure.twin import make_twin
from tests.metrics.test_flops import ADAPTERS_M, ATTENTION, CONFIGS, WORKED
from tests.train.measure.families import EXPERTS, FAMILIES, build, executed, from_config, with_lora

LENGTH = 1024
"""Another length than those that the count itself is made at."""


def count(model: Any, *, checkpointing: bool = False) -> ModelWork:
    found = count_work(make_twin(model), checkpointing=checkpointing)
    assert found.agrees
    return found.work


def square(work: ModelWork, length: int = LENGTH) -> float:
    """FLOPs as eager attention executes them: over the full square."""
    computed = Computed(length, length, masked_squares=0, plain_squares=length**2)
    return executed_flops(work, computed, EAGER, tokens=length, sum_squared_lengths=length**2)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_modules_count_is_pytorchs(name: str, method: str) -> None:
    """With and without checkpointing, which executes more but requires nothing more."""
    model = build(name)
    if method == "lora":
        model = with_lora(model)
    work = count(model, checkpointing=True)
    sums: dict[str, Any] = {"tokens": LENGTH, "sum_squared_lengths": LENGTH**2}
    plain = required_flops(work, **sums, causal=False) / executed(model, LENGTH)
    model.activation_checkpointing_enable({"use_reentrant": False})
    again = square(work) / executed(model, LENGTH)
    print(f"{name} {method}: ratio {plain:.6f}, with checkpointing {again:.6f}")
    assert plain == pytest.approx(1, abs=0.005)
    assert again == pytest.approx(1, abs=0.005)
    assert work.recomputed > 0
    assert required_flops(work, **sums) < palm_flops(work, **sums)


@pytest.mark.parametrize("name", WORKED)
def test_worked_numbers(name: str) -> None:
    """The figures in tests/metrics/test_flops.py, from the modules, each to 0.1 %.

    LoRA's are the rounder form 4N + 6A, and HFU's leave out that PyTorch ends a repetition early:
    both differences are worked out here.
    """
    params, palm, full, lora_square, lora, hfu = WORKED[name]
    options = {**CONFIGS[name], "use_cache": False, "max_position_embeddings": 4096}
    model = from_config(transformers.AutoConfig.for_model(options.pop("model_type"), **options))
    work = count(model)
    per_token = 4096 * 1e9
    sums: dict[str, Any] = {"tokens": 4096, "sum_squared_lengths": 4096**2}
    assert work.forward + work.head_forward == params
    assert palm_flops(work, **sums) / per_token == pytest.approx(palm, rel=1e-3)
    assert required_flops(work, **sums) / per_token == pytest.approx(full, rel=1e-3)
    layers, hidden, inner = (
        CONFIGS[name][key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size")
    )
    again = square(count(model, checkpointing=True), 4096) / per_token
    model.activation_checkpointing_disable()
    # The last product of a layer; but the router's weights need what experts have given.
    last = 0 if "Mixtral" in name else 2 * layers * hidden * inner / 1e9
    assert again == pytest.approx(hfu - last, rel=1e-3)
    targets = ATTENTION if "Mixtral" in name else "all-linear"
    adapted = with_lora(model, targets, r=16)
    adapters = adapted.get_nb_trainable_parameters()[0]
    assert adapters / 1e6 == pytest.approx(ADAPTERS_M[name], abs=0.051)
    # In the first layer nothing trained lies below queries, keys and values.
    base = model.model.layers[0].self_attn
    first = sum(one.weight.numel() for one in (base.q_proj, base.k_proj, base.v_proj))
    unneeded = 2 * (first + 3 * 16 * hidden) / 1e9
    work = count(adapted)
    narrow = required_flops(work, **sums) / per_token
    assert narrow + unneeded == pytest.approx(lora, rel=1e-3)
    square_one = required_flops(work, **sums, causal=False) / per_token
    assert square_one + unneeded == pytest.approx(lora_square, rel=1e-3)


def test_layers_in_a_row_are_counted_by_two() -> None:
    for adapt in (lambda model: model, with_lora):
        few = make_twin(adapt(build("llama", num_hidden_layers=2)))
        many = make_twin(adapt(build("llama", num_hidden_layers=6)))
        assert [len(indices) for indices in many.represents] == [1, 5]
        two, six = count_work(few).work, count_work(many).work
        assert len(six.attention) == 6
        assert six.forward == 3 * two.forward
        assert six.head_forward == two.head_forward
        assert square(six) == executed(adapt(build("llama", num_hidden_layers=6)), LENGTH)


def test_layers_that_differ_are_all_counted() -> None:
    model = with_lora(build("llama", num_hidden_layers=6), r".*\.3\..*_proj")
    assert [len(i) for i in make_twin(model).represents] == [1, 2, 1, 1, 1]
    assert square(count(model)) == executed(model, LENGTH)


def test_windows_are_those_of_each_layer() -> None:
    work = count(build("gemma3_text", sliding_window=32, num_hidden_layers=12))
    assert [layer.window for layer in work.attention] == [*[32] * 5, None] * 2
    assert [layer.window for layer in count(build("mistral")).attention] == [1024, 1024]
    assert [layer.window for layer in count(build("cohere2")).attention] == [1024, 1024]


def test_latent_attention_has_two_widths() -> None:
    [layer, _] = count(build("deepseek_v3")).attention
    assert (layer.key_width, layer.value_width) == (4 * (16 + 8), 4 * 12)


@pytest.mark.parametrize(
    ("targets", "gradients"),
    [
        (["q_proj", "k_proj", "v_proj"], (2, 2)),
        (["q_proj"], (1, 1)),
        (["v_proj"], (0, 1)),
        (["o_proj"], (0, 0)),
        (["down_proj"], (0, 0)),
    ],
)
def test_the_first_layer_needs_only_gradients_that_lead_to_an_adapter(
    targets: list[str], gradients: tuple[int, int]
) -> None:
    model = with_lora(build("llama"), targets)
    work = count(model)
    first, second = work.attention
    assert (first.key_gradients, first.value_gradients) == gradients
    assert (second.key_gradients, second.value_gradients) == (2, 2)
    assert square(work) == executed(model, LENGTH)


def test_logits_are_counted_where_they_are_computed() -> None:
    work = count(build("llama"))
    sums: dict[str, Any] = {"tokens": 100, "sum_squared_lengths": 100**2}
    all_logits = required_flops(work, **sums)
    assert required_flops(work, **sums, logit_tokens=100) == all_logits
    assert all_logits - required_flops(work, **sums, logit_tokens=40) == 6 * 60 * 500 * 64


@pytest.mark.parametrize("name", [name for name in EXPERTS if name != "gpt_oss"])
def test_adapters_of_experts_cost_what_the_chosen_ones_do(name: str) -> None:
    """Against PyTorch's counter, of what the chosen experts' adapters multiply written out.

    PEFT adds them to the whole weights, which is more than they require, and not possible on meta.
    """
    few = with_lora(build(name))
    model = with_lora(build(name), "all-linear")
    work = count(model)
    expected = executed(few, LENGTH) + sum(
        adapter_flops(*sizes) * times for *sizes, times in added(model, few)
    )
    ratio = square(work) / expected
    print(f"{name} LoRA all-linear: ratio {ratio:.6f}")
    assert ratio == pytest.approx(1, abs=0.005)
    shape = ModelShape.from_config(model.config.to_dict())
    if shape is not None:  # The table of families, which counts until the modules are counted.
        adapters = lora_adapters(shape, r=4, target_modules="all-linear")
        sums: dict[str, Any] = {"tokens": LENGTH, "sum_squared_lengths": LENGTH**2}
        table = training_flops(shape, method="lora", adapters=adapters, causal=False, **sums)
        assert table == pytest.approx(expected, rel=0.005)


def added(model: Any, few: Any) -> Iterator[tuple[int, int, int, int]]:
    """Input, rank and output of each adapter that is here only, and how often a token meets it.

    A pair of fused matrices has one adapter of both ranks.
    """
    known = {path for path, one in few.named_modules() if hasattr(one, "lora_A")}
    for path, module in model.named_modules():
        if not hasattr(module, "lora_A") or path in known:
            continue
        base = module.get_base_layer()
        shape = getattr(base, getattr(module, "parameter_name", "weight")).shape
        is_experts = len(shape) == 3
        rank = module.lora_A["default"].weight.shape[0] // (shape[0] if is_experts else 1)
        times = model.config.num_experts_per_tok if is_experts else 1
        yield shape[-1], rank, shape[-2], times


def adapter_flops(inside: int, rank: int, outside: int) -> int:
    """FLOPs of one adapter, there and back, for a sequence, by PyTorch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    down, up = torch.nn.Linear(inside, rank), torch.nn.Linear(rank, outside)
    pair = torch.nn.Sequential(down, up).to("meta")
    rows = torch.zeros(LENGTH, inside, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        pair(rows).sum().backward()
    return int(counter.get_total_flops())


def test_dora_needs_what_lora_does() -> None:
    """Its norms are computed once a step, whatever the number of tokens."""
    lora = count(with_lora(build("llama"), lora_dropout=0.1))
    dora = count(with_lora(build("llama"), lora_dropout=0.1, use_dora=True))
    assert dora == lora


def test_a_partly_frozen_model_is_counted_exactly() -> None:
    model = build("qwen3")
    model.model.layers[0].requires_grad_(False)
    model.model.embed_tokens.requires_grad_(False)
    assert square(count(model)) == executed(model, LENGTH)


def test_the_model_itself_is_not_changed() -> None:
    model = with_lora(build("mixtral", device="cpu"), "all-linear")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.config._attn_implementation = "sdpa"
    count(model)
    assert model.config._attn_implementation == "sdpa"
    assert {str(one.device) for one in model.parameters()} == {"cpu"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(one._forward_hooks for one in model.modules())


def test_an_unknown_kind_of_layer_is_not_guessed() -> None:
    model = build("llama")
    model.config.layer_types = ["chunked_attention"] * 2
    with pytest.raises(UncountableError, match="chunked_attention"):
        count_work(make_twin(model))
