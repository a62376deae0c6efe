"""Merge a PEFT adapter into its base model, whatever the adapter is of and whatever is tied."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

_EXPECTED = (
    "Input and output embeddings are no longer tied",
    "Model with `tie_word_embeddings=True` and the tied_target_modules",
)
"""How PEFT's warnings begin about what is done here on purpose."""


def merged(model: Any) -> Any:
    """Return the base model of a PEFT model with the adapter merged in. The given one is used up.

    A weight that two layers share, such as that of embedding and output layer, is copied where an
    adapter of one of them changes it: the other layer would get the change too. The model's config
    says then that the embeddings are not tied, so that both are saved.
    """
    _untie(model)
    with warnings.catch_warnings():
        for text in _EXPECTED:
            warnings.filterwarnings("ignore", message=text)
        base = model.merge_and_unload()
    _correct_config(base)
    return base


def _untie(model: Any) -> None:
    """Give each layer with an adapter a weight of its own."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    users = Counter(
        id(weight) for module in model.modules() for weight in module._parameters.values()
    )
    for module in model.modules():
        if not isinstance(module, BaseTunerLayer):
            continue
        layer = module.get_base_layer()
        weight = getattr(layer, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and users[id(weight)] > 1:
            users[id(weight)] -= 1
            copy = weight.detach().clone()
            layer.weight = torch.nn.Parameter(copy, requires_grad=weight.requires_grad)


def _correct_config(model: Any) -> None:
    """Write into the config whether input and output embeddings are tied."""
    try:
        first, last = model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):  # A model of the hook `build_model`.
        return
    weights = [getattr(layer, "weight", None) for layer in (first, last)]
    if weights[0] is None or weights[1] is None or weights[0] is weights[1]:
        return
    for config in {id(one): one for one in (model.config, model.config.get_text_config())}.values():
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False
