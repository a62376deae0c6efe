"""Tokens of each expert, against the choices that a router's own logits make in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST
from llmops_kernel.train.measure.expert_counts import ExpertCounts
from tests.train.measure.families import EXPERTS, build, from_config, with_lora

CPU = torch.device("cpu")
PLAIN = {"n_group": 1, "topk_group": 1}
"""Without groups of experts, every family takes the k highest logits."""
LENGTHS = (9, 23)
"""Of the two rows of a batch; the shorter one is padded."""


def model_of(family: str) -> Any:
    """Build a tiny model whose routers prefer some experts."""
    model = from_config(_config(family), device="cpu")
    generator = torch.Generator().manual_seed(2)
    for router in routers(model):
        weight = torch.randn(router.weight.shape, generator=generator)
        router.weight.data = weight * torch.linspace(0.1, 3.0, len(weight))[:, None]
    return model


def _config(family: str) -> Any:
    changes = PLAIN if family.startswith(("deepseek", "glm4")) else {}
    return build(family, **changes).config


def routers(model: Any) -> list[Any]:
    """The routers, as Transformers itself names them."""
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = type(bare)._can_record_outputs["router_logits"].target_class
    return [module for module in bare.modules() if isinstance(module, kind)]


@contextmanager
def router_logits(model: Any) -> Iterator[list[list[np.ndarray]]]:
    """Collect the logits of each router's calls."""
    found: list[list[np.ndarray]] = [[] for _ in routers(model)]
    hooks = [
        router.register_forward_hook(
            lambda module, args, output, mine=mine: mine.append(output[0].detach().numpy())
        )
        for router, mine in zip(routers(model), found, strict=True)
    ]
    yield found
    for hook in hooks:
        hook.remove()


def batch(seed: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 500, (2, max(LENGTHS)), generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([[1] * n + [0] * (max(LENGTHS) - n) for n in LENGTHS])
    return {"input_ids": tokens * mask, "attention_mask": mask}


def by_numpy(logits: list[list[np.ndarray]], masks: list[np.ndarray], k: int) -> dict[str, float]:
    """The same figures from the router's logits, without the padding."""
    loads, idle, experts = [], 0, 0
    for calls in logits:
        kept = np.concatenate([one[mask == 1] for one, mask in zip(calls, masks, strict=True)])
        chosen = np.argsort(-kept, axis=1)[:, :k]
        shares = np.bincount(chosen.ravel(), minlength=kept.shape[1]) / len(kept)
        loads.append(shares.max() / shares.mean())
        idle += int((shares == 0).sum())
        experts += len(shares)
    return {LOAD: float(np.mean(loads)), WORST: max(loads), IDLE: idle / experts}


@pytest.mark.parametrize("family", EXPERTS)
def test_each_family_is_counted_as_its_router_chooses(family: str) -> None:
    """Two micro batches are one step; an evaluation between them is none of it."""
    model = model_of(family)
    counts = ExpertCounts.of(model)
    assert counts is not None
    batches = [batch(seed) for seed in (0, 1)]
    with router_logits(model) as logits:
        for one in batches:
            model(**one)
    with torch.no_grad():
        model.eval()(**batch(5))
    masks = [one["attention_mask"].numpy().ravel() for one in batches]
    k = model.config.num_experts_per_tok
    found = counts.reduce(CPU)
    assert found == pytest.approx(by_numpy(logits, masks, k))
    assert found[LOAD] > 1.2
    assert counts.reduce(CPU) == {}  # the next step begins with none


@pytest.mark.parametrize("targets", [None, ["gate_up_proj", "down_proj"]])
def test_adapters_and_checkpointing_change_no_share(targets: list[str] | None) -> None:
    plain = ExpertCounts.of(model := model_of("mixtral"))
    assert plain is not None
    model(**batch(0))
    on_experts = {"target_parameters": [f"experts.{name}" for name in targets or ()]}
    adapted = with_lora(model_of("mixtral"), **on_experts if targets else {})
    adapted.get_base_model().activation_checkpointing_enable()
    adapted.enable_input_require_grads()
    counts = ExpertCounts.of(adapted)
    assert counts is not None
    tokens = batch(0)
    adapted(**tokens, labels=tokens["input_ids"]).loss.backward()
    assert counts.reduce(CPU) == plain.reduce(CPU)


def test_rows_without_padding_count_whole() -> None:
    counts = ExpertCounts.of(model := model_of("qwen3_moe"))
    assert counts is not None
    tokens = batch(0)["input_ids"]
    with router_logits(model) as logits:
        model(input_ids=tokens)
    every = [np.ones(tokens.numel())]
    assert counts.reduce(CPU) == pytest.approx(by_numpy(logits, every, 2))


@pytest.mark.parametrize("family", ["llama", "gpt2", "falcon"])
def test_a_dense_model_has_no_hooks(family: str) -> None:
    model = build(family)
    assert ExpertCounts.of(model) is None
    assert not any(module._forward_pre_hooks for module in model.modules())
