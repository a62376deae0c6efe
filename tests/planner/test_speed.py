"""Time of a step: required work is that of `metrics.flops`, and each part by its own arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llmops_kernel.metrics.flops import training_flops
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.plan import Hardware, largest_micro_batch, plan
from llmops_kernel.planner.setup import Lora, Setup
from llmops_kernel.planner.speed import Rates, speed
from tests.metrics.test_flops import CONFIGS, WORKED

ARCHITECTURE = Architecture.from_config(CONFIGS["Llama-2-7B"])
assert ARCHITECTURE is not None
SETUP = Setup(
    architecture=ARCHITECTURE,
    attention="flash",
    micro_batch_size=2,
    gradient_accumulation_steps=3,
    length=4096,
    is_padded=False,
)
RATES = Rates(peak_flops=312e12, memory_per_second=2e12)


def test_a_step_requires_what_mfu_counts() -> None:
    found = speed(SETUP, RATES)
    tokens = 2 * 3 * 4096
    assert found.tokens == tokens
    assert found.required_flops / tokens / 1e9 == pytest.approx(WORKED["Llama-2-7B"][2], abs=1e-3)
    assert found.compute_s == pytest.approx(found.required_flops / (312e12 * 0.5))
    assert found.mfu == pytest.approx(found.required_flops / (found.step_s * 312e12))


def test_checkpointing_and_padding_are_computed_but_not_required() -> None:
    plain, recomputed = speed(SETUP, RATES), speed(replace(SETUP, checkpointing=True), RATES)
    assert recomputed.required_flops == plain.required_flops
    # A forward pass more, but for the last product of each layer: PyTorch stops before it.
    down = 2 * 32 * 11008 * 4096 * plain.tokens
    again = recomputed.executed_flops - plain.executed_flops + down
    assert again / plain.executed_flops == pytest.approx(1 / 3, rel=0.03)
    of_zero3 = speed(replace(SETUP, checkpointing=True, replaces_linear=True), RATES)
    assert of_zero3.executed_flops - recomputed.executed_flops == pytest.approx(down)
    padded = speed(replace(SETUP, attention="sdpa", is_padded=True), RATES)
    assert padded.required_flops == plain.required_flops
    assert padded.executed_flops > plain.executed_flops


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_logits_at_labels_save_the_heads_products(share: float) -> None:
    found = speed(replace(SETUP, logits="labels", label_share=share), RATES)
    head = 3 * 2 * ARCHITECTURE.shape.lm_head.active_params * found.tokens
    saved = speed(SETUP, RATES).required_flops - found.required_flops
    assert saved == pytest.approx((1 - share) * head)


def test_an_adapter_requires_what_the_exact_count_says() -> None:
    found = speed(replace(SETUP, lora=Lora(r=16)), RATES)
    tokens = 2 * 3 * 4096
    exact = training_flops(
        ARCHITECTURE.shape,
        tokens=tokens,
        sum_squared_lengths=6 * 4096**2,
        method="lora",
        adapters=replace(SETUP, lora=Lora(r=16)).adapters,
    )
    assert found.required_flops == pytest.approx(exact)


def test_a_reference_is_a_forward_pass_more() -> None:
    one = speed(SETUP, RATES)
    two = speed(replace(SETUP, references=1), RATES)
    assert two.required_flops / one.required_flops == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("strategy", "sent"),
    # Bytes a weight: gradients twice, of float32 or bfloat16; or weights twice and gradients once.
    [("ddp", 8), ("zero1", 4), ("zero2", 4), ("zero3", 6), ("fsdp", 6)],
)
def test_communication_that_nothing_hides(strategy: Any, sent: int) -> None:
    """With devices that compute in no time, all of it is seen."""
    setup = replace(
        SETUP, strategy=strategy, num_workers=4, workers_per_node=4, gradient_accumulation_steps=1
    )
    found = speed(setup, Rates(peak_flops=1e30, within_node=100e9))
    expected = sent * setup.base_params * 3 / 4 / 100e9
    assert found.communication_s == pytest.approx(expected, rel=1e-3)
    near = speed(replace(setup, workers_per_node=2), Rates(peak_flops=1e30, between_nodes=20e9))
    assert near.communication_s == pytest.approx(expected * 10, rel=1e-3)
    assert speed(replace(setup, num_workers=1), RATES).communication_s == 0


def test_the_optimizers_step_is_bound_by_memory_or_by_the_host() -> None:
    found = speed(SETUP, RATES)
    assert found.optimizer_s == pytest.approx(SETUP.base_params * 28 / (0.8 * 2e12))
    zero = replace(SETUP, strategy="zero2", num_workers=8, workers_per_node=8)
    offloaded = speed(replace(zero, offload_optimizer=True), RATES)
    assert offloaded.optimizer_s > 10 * speed(zero, RATES).optimizer_s
    assert speed(SETUP, Rates(peak_flops=1e12)).optimizer_s == 0


@pytest.mark.parametrize("memory_gb", [10, 80, 640])
def test_the_largest_batch_fits_and_the_next_does_not(memory_gb: int) -> None:
    setup = replace(SETUP, lora=Lora(r=16), gradient_accumulation_steps=1)
    hardware = Hardware(memory_bytes=memory_gb * 1e9)
    largest = largest_micro_batch(setup, hardware)
    assert largest is not None
    assert plan(replace(setup, micro_batch_size=largest + 1), hardware).fits is False
    if largest:
        assert plan(replace(setup, micro_batch_size=largest), hardware).fits is True


def test_what_is_not_known_is_none() -> None:
    found = plan(SETUP, Hardware(), steps=10)
    assert (found.fits, found.largest_micro_batch, found.speed, found.cost) == (None,) * 4
    priced = plan(SETUP, Hardware(rates=RATES, node_hour=10.0, devices_per_node=8), steps=10)
    assert priced.cost is not None
    assert priced.cost.money == pytest.approx(10 * priced.cost.node_hours)
    assert priced.cost.kilowatt_hours is None
    assert priced.fits is None
