"""Names of the attention kernels, as far as PyTorch and the packages tell before they run.

Private: `torch._fused_sdp_choice` (checked on PyTorch 2.13), with which PyTorch itself chooses.
Where it is missing, the words leave its answer out.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from llmops_kernel.metrics.model_work import EAGER, Kernel, Kernels

_LENGTH = 128
_PACKAGES = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}
_CHOICES = {0: "math", 1: "flash", 2: "memory efficient", 3: "cuDNN", 4: "overrideable"}
"""Values of `torch.nn.attention.SDPBackend`, and what PyTorch's documentation calls them."""
_FUSED = ("flash", "memory efficient", "cuDNN")
"""Keep no probabilities: the backward pass computes them once more from queries and keys."""


def describe_kernels(model: Any, names: str, dtype: str, device: torch.device) -> str:
    """Return the kernels of the layers, with what PyTorch would choose for `sdpa`.

    `names`: what the layers' configs say, such as `sdpa`. PyTorch chooses at each call, by shape
    and mask: the choices for a batch without a mask and with one are named.
    """
    if names in _PACKAGES:
        return f"{names} ({_installed(_PACKAGES[names])})"
    if names != "sdpa":
        return names
    choices = sdpa_choices(_config(model), getattr(torch, dtype), device)
    if choices is None:
        return "sdpa"
    plain, masked = choices
    return f"sdpa ({plain})" if plain == masked else f"sdpa ({plain}; {masked} with a mask)"


def kernels(model: Any, names: str, dtype: str, device: torch.device) -> Kernels | None:
    """Return what the kernels compute; None where it is not known."""
    if names == "eager":
        return EAGER
    if names in _PACKAGES:
        return Kernels(*[Kernel("own", recomputes=True)] * 2)
    choices = None
    if names == "sdpa":
        choices = sdpa_choices(_config(model), getattr(torch, dtype), device)
    if choices is None or not set(choices) <= {"math", *_FUSED}:
        return None
    plain, masked = (name in _FUSED for name in choices)
    # PyTorch's math kernel and each kernel with a mask compute the whole square.
    return Kernels(
        plain=Kernel("earlier" if plain else "square", recomputes=plain),
        masked=Kernel("square", recomputes=masked),
    )


def sdpa_choices(config: Any, dtype: torch.dtype, device: torch.device) -> tuple[str, str] | None:
    """Return PyTorch's choices for training with the heads of a config, without and with a mask.

    None: unknown, also where keys and values have different sizes.
    """
    settings = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads = getattr(settings, "num_attention_heads", None)
    hidden = getattr(settings, "hidden_size", None)
    size = getattr(settings, "head_dim", None) or (hidden // heads if heads and hidden else None)
    choose = getattr(torch, "_fused_sdp_choice", None)
    if not heads or not size or choose is None or getattr(settings, "v_head_dim", None):
        return None
    shape = (1, heads, _LENGTH, size)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    mask = torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool, device=device)
    rates = (getattr(settings, name, None) for name in ("attention_dropout", "attn_pdrop"))
    dropout = max(float(rate or 0.0) for rate in rates)
    try:
        plain = choose(query, query, query, None, dropout, True)
        masked = choose(query, query, query, mask, dropout, False)
    except (RuntimeError, TypeError):
        return None
    return _CHOICES.get(int(plain), "unknown"), _CHOICES.get(int(masked), "unknown")


def _config(model: Any) -> Any:
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(bare, "config", None)


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"of another package than {package}"
