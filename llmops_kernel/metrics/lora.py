"""LoRA adapters on a model: which layers get one, their weights, and the work they cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llmops_kernel.metrics.shapes import Linear, ModelShape, Stage

ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class LoraAdapters:
    """Adapters of rank r, and what one backward pass through the frozen model needs."""

    params: int
    """All adapter weights."""
    active_params: int
    """A: those that one token meets, k of E experts'."""
    modules: tuple[str, ...]
    """Full names of the adapted layers."""
    backward_params: int
    """Weights that take part in a product of the backward pass, once per product: a token
    costs twice this in FLOPs.
    """
    attention_products: tuple[tuple[int | None, int], ...]
    """Products of query length x key length in the backward pass, by attention window."""


@dataclass(frozen=True)
class _Site:
    """A linear layer at its position in the model."""

    layer: int
    linear: Linear
    name: str
    adapted: bool

    @property
    def position(self) -> tuple[int, Stage]:
        return self.layer, self.linear.stage


def lora_adapters(
    shape: ModelShape, *, r: int, target_modules: str | Sequence[str]
) -> LoraAdapters | None:
    """Place adapters as PEFT does; None when no layer matches, or PEFT would refuse.

    `target_modules`: "all-linear" (all but the head), names or ends of names, or one
    regular expression over the full name (not modelled for models with fused experts).

    The backward pass starts at the head and ends at the first adapted layer: nothing
    below it is trained, so no gradient is needed there. At that place the frozen weight
    and the adapter's A need no input gradient, and attention only those of its four
    products that lead to an adapter. Everything above needs each input gradient, and
    each adapter its weight gradients. This is what autograd executes (the tests compare
    it with FlopCounterMode), with two exceptions that are not required work:
    `enable_input_require_grads` (reentrant checkpointing) makes it do the rest as well,
    and PEFT 0.21 folds adapters of fused experts into the full weight at each step.
    """
    sites = _sites(shape, target_modules)
    adapted = [site for site in sites if site.adapted]
    if not adapted or not _is_modelled(shape, target_modules):
        return None
    first = min(site.position for site in adapted)
    return LoraAdapters(
        params=sum(_adapter_params(site.linear, r=r) * site.linear.copies for site in adapted),
        active_params=sum(
            _adapter_params(site.linear, r=r) * site.linear.active for site in adapted
        ),
        modules=tuple(site.name for site in adapted),
        backward_params=sum(_backward_params(site, r=r, first=first) for site in sites),
        attention_products=_attention_products(shape, adapted, first=first),
    )


def _sites(shape: ModelShape, target_modules: str | Sequence[str]) -> tuple[_Site, ...]:
    old_names = _old_names(shape)

    def site(layer: int, linear: Linear, name: str) -> _Site:
        return _Site(layer, linear, name, _is_adapted(linear, name, target_modules, old_names))

    head = shape.lm_head
    return (
        *(
            site(index, linear, f"{shape.layer_path}.{index}.{linear.name}")
            for index, layer in enumerate(shape.layers)
            for linear in layer.linears
        ),
        site(len(shape.layers), head, head.name),
    )


def _old_names(shape: ModelShape) -> frozenset[str]:
    linears = (linear for layer in shape.layers for linear in layer.linears)
    return frozenset(name for linear in linears for name in linear.old_names)


def _is_modelled(shape: ModelShape, target_modules: str | Sequence[str]) -> bool:
    """Return whether the targets can be modelled.

    With fused experts PEFT resolves a regular expression across layers and refuses one half of a
    fused pair.
    """
    old_names = _old_names(shape)
    if not old_names or _is_all_linear(target_modules):
        return True
    if isinstance(target_modules, str):
        return False
    targets = {_leaf(target) for target in target_modules}
    groups = {frozenset(linear.old_names) for layer in shape.layers for linear in layer.linears}
    return all(group <= targets or not group & targets for group in groups)


def _is_adapted(
    linear: Linear,
    name: str,
    target_modules: str | Sequence[str],
    old_names: frozenset[str],
) -> bool:
    """Return whether PEFT adapts it. `old_names`: those that PEFT takes for the fused experts'."""
    if not linear.adaptable:
        return False
    if _is_all_linear(target_modules):
        is_taken = not linear.old_names and _leaf(name) in old_names
        return linear.stage is not Stage.HEAD and not is_taken
    if isinstance(target_modules, str):
        return re.fullmatch(target_modules, name) is not None
    if linear.old_names:
        return set(linear.old_names) <= {_leaf(target) for target in target_modules}
    targets = [target for target in target_modules if _leaf(target) not in old_names]
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _is_all_linear(target_modules: str | Sequence[str]) -> bool:
    return isinstance(target_modules, str) and target_modules.lower() == ALL_LINEAR


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def adapter_rank(linear: Linear, *, r: int) -> int:
    """Return the rank, which PEFT doubles where one matrix holds two former layers."""
    return r * max(1, len(linear.old_names))


def _adapter_params(linear: Linear, *, r: int) -> int:
    return adapter_rank(linear, r=r) * (linear.in_features + linear.out_features)


def _backward_params(site: _Site, *, r: int, first: tuple[int, Stage]) -> int:
    if site.position < first:
        return 0
    input_gradient = site.position > first
    needed = site.linear.active_params if input_gradient else 0
    if site.adapted:
        # B: weight and input gradient; A: weight gradient, and input gradient if needed.
        rank = adapter_rank(site.linear, r=r) * site.linear.active
        needed += 2 * rank * site.linear.out_features
        needed += (2 if input_gradient else 1) * rank * site.linear.in_features
    return needed


def _attention_products(
    shape: ModelShape, adapted: Sequence[_Site], *, first: tuple[int, Stage]
) -> tuple[tuple[int | None, int], ...]:
    products: Counter[int | None] = Counter()
    for index, layer in enumerate(shape.layers):
        if index > first[0]:
            products[layer.window] += 4
        elif (index, Stage.QKV) == first:
            names = {site.linear.name for site in adapted if site.position == first}
            products[layer.window] += _first_products(names)
    return tuple(products.items())


def _first_products(names: set[str]) -> int:
    """Count the gradients in attention's own backward: probabilities, queries, keys, values."""
    separate = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    if not names <= set(separate):
        return 4  # One fused matrix makes all three.
    queries, keys, values = (name in names for name in separate)
    return (queries or keys) + queries + keys + values
