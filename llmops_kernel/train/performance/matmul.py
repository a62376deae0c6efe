"""float32 matrix products of a CPU by oneDNN instead of Intel MKL.

MKL takes its AVX2 code on AMD processors, whatever they can do; oneDNN looks at the instructions
that there are. PyTorch 2.13 has no setting for it in float32, so this replaces PyTorch's kernels of
`aten::mm` and `aten::addmm` for CPUs, in this process: forward and backward passes of every engine
and method come down to these two. Small products and other dtypes stay with PyTorch. Results differ
by rounding.

What is private here: `torch.ops.mkldnn._linear_pointwise` (checked on PyTorch 2.13). Where it is
missing, or gives another product, nothing is replaced.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmops_kernel.hardware.precision import processor, used_flags

_LEAST_WORK = 200_000
"""Multiply-adds below which the detour through Python costs more than it saves."""
_KEPT_SIZES = 64
"""The layers of a decoder have some 25 products of different sizes, forward and backward."""
_installed: list[Any] = []
"""The registration; PyTorch removes its kernels when it is collected."""


def kernel_name() -> str:
    """Return `onednn` in a process with the replaced kernels, else `torch`."""
    return "onednn" if _installed else "torch"


def gains(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor has AVX-512 that MKL leaves unused: one of AMD's."""
    facts = processor(cpuinfo)
    return facts.get("vendor_id") == "AuthenticAMD" and "avx512f" in used_flags(facts)


def bound_caches() -> None:
    """Limit what oneDNN keeps of products of other sizes; must be called before its first product.

    It keeps the code and the buffers of the last 1,024 sizes in two caches, whose entries are as
    large as the products. Batches have ever other lengths: a worker of a 4-layer model took 1.3 GiB
    more in 700 steps. The variables are read once, at the first product; a user's stay.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(_KEPT_SIZES))


def install() -> bool:
    """Replace the kernels for the rest of this process; False where that is not possible."""
    if _installed:
        return True
    product = _product()
    if product is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced, which is meant
        library = torch.library.Library("aten", "IMPL")
        library.impl("mm", _mm(product), "CPU", allow_override=True)
        library.impl("addmm", _addmm(product), "CPU", allow_override=True)
    _installed.append(library)
    return True


def uninstall() -> None:
    """Give PyTorch its kernels back."""
    while _installed:
        _installed.pop()._destroy()


Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def _product() -> Product | None:
    """Return `(left, right, bias) -> left @ right + bias` by oneDNN, tried on a small one."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        linear = torch.ops.mkldnn._linear_pointwise.default
    except (AttributeError, RuntimeError):
        return None

    def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        made: torch.Tensor = linear(left.contiguous(), right.t(), bias, "none", [], "")
        return made

    left, right = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
    try:
        is_right = torch.equal(product(left, right, right[0]), left @ right + right[0])
    except (RuntimeError, TypeError):
        return None
    return product if is_right else None


def _mm(product: Product) -> Callable[..., torch.Tensor]:
    fallback = torch.ops.aten.mm.out

    def mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if _is_large(left, right):
            return product(left, right, None)
        made: torch.Tensor = fallback(left, right, out=_empty(left, right))
        return made

    return mm


def _addmm(product: Product) -> Callable[..., torch.Tensor]:
    fallback = torch.ops.aten.addmm.out

    def addmm(
        bias: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        *,
        beta: Any = 1,
        alpha: Any = 1,
    ) -> torch.Tensor:
        if bias.dim() == 1 and beta == 1 and alpha == 1 and _is_large(left, right):
            return product(left, right, bias)
        out = _empty(left, right)
        made: torch.Tensor = fallback(bias, left, right, beta=beta, alpha=alpha, out=out)
        return made

    return addmm


def _is_large(left: torch.Tensor, right: torch.Tensor) -> bool:
    rows, inner = left.shape
    work = rows * inner * right.shape[1]
    return work > _LEAST_WORK and left.dtype == torch.float32 and right.dtype == torch.float32


def _empty(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.empty((left.shape[0], right.shape[1]), dtype=left.dtype)
