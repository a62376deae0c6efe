"""Which attention kernel computes, as far as PyTorch and the packages say before it does.

Private: `torch._fused_sdp_choice` (checked on PyTorch 2.13), with which PyTorch itself chooses.
Where it is missing, the words leave its answer out.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

_LENGTH = 128
_PACKAGES = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}
_CHOICES = {0: "math", 1: "flash", 2: "memory efficient", 3: "cuDNN", 4: "overrideable"}
"""Values of `torch.nn.attention.SDPBackend`, and what PyTorch's documentation calls them."""


def kernel_words(model: Any, names: str, dtype: str, device: torch.device) -> str:
    """Return the kernels of the layers, with what PyTorch would choose for `sdpa`.

    `names`: what the layers' configs say, such as `sdpa`. PyTorch chooses at each call, by shape
    and mask: the choices for a batch without a mask and with one are named.
    """
    if names in _PACKAGES:
        return f"{names} ({_installed(_PACKAGES[names])})"
    if names != "sdpa":
        return names
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    found = sdpa_choices(bare.config, getattr(torch, dtype), device)
    return f"sdpa ({found})" if found else "sdpa"


def sdpa_choices(config: Any, dtype: torch.dtype, device: torch.device) -> str:
    """Return PyTorch's choices for training with the heads of a config; empty: unknown."""
    settings = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads = getattr(settings, "num_attention_heads", None)
    hidden = getattr(settings, "hidden_size", None)
    size = getattr(settings, "head_dim", None) or (hidden // heads if heads and hidden else None)
    choose = getattr(torch, "_fused_sdp_choice", None)
    if not heads or not size or choose is None:
        return ""
    shape = (1, heads, _LENGTH, size)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    mask = torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool, device=device)
    try:
        plain = choose(query, query, query, None, 0.0, True)
        masked = choose(query, query, query, mask, 0.0, False)
    except (RuntimeError, TypeError):
        return ""
    names = [_CHOICES.get(int(one), "unknown") for one in (plain, masked)]
    return names[0] if names[0] == names[1] else f"{names[0]}; {names[1]} with a mask"


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"of another package than {package}"
