"""Matrix products by oneDNN: the same numbers but for rounding, forward and backward."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from llmops_kernel.train.measure.device import peak_key
from llmops_kernel.train.performance import matmul

CPUINFO = "processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: x\nflags\t\t: fpu {flags}\n"


@pytest.fixture
def onednn() -> Iterator[None]:
    if not matmul.install():
        pytest.skip("this PyTorch has no oneDNN product")
    yield
    matmul.uninstall()


def results() -> list[torch.Tensor]:
    """A layer with a bias and one without, large and small products, and their gradients."""
    torch.manual_seed(0)
    found = []
    for rows, inner, outer in ((3, 70, 96), (130, 70, 96), (130, 96, 1)):
        given = torch.randn(2, rows, inner, requires_grad=True)
        for bias in (False, True):
            layer = torch.nn.Linear(inner, outer, bias=bias)
            loss = (layer(given) ** 2).mean()
            loss.backward()
            found += [loss.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]
        assert given.grad is not None
        found.append(given.grad)
    left, right, more = torch.randn(130, 64), torch.randn(64, 96), torch.randn(130, 96)
    found.append(torch.addmm(more, left, right, beta=0.5, alpha=2))
    found.append(left.double() @ right.double())
    found.append(torch.ones(0, 5) @ torch.ones(5, 3))
    return found


def test_products_and_gradients_are_the_same(onednn: None) -> None:
    assert matmul.kernel_name() == "onednn"
    replaced = results()
    matmul.uninstall()
    assert matmul.kernel_name() == "torch"
    for one, other in zip(replaced, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_same_product_is_the_same_each_time(onednn: None) -> None:
    left, right = torch.randn(130, 64), torch.randn(64, 96)
    assert torch.equal(left @ right, left @ right)


def test_the_peak_of_other_kernels_is_another_one(onednn: None) -> None:
    with_onednn = peak_key("cpu", "float32")
    matmul.uninstall()
    assert peak_key("cpu", "float32") != with_onednn


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "avx2 avx512f", True),
        ("AuthenticAMD", "avx2", False),
        ("GenuineIntel", "avx2 avx512f", False),
    ],
)
def test_only_a_processor_that_mkl_does_not_use_well_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, flags: str, expected: bool
) -> None:
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)  # They imitate a lesser processor.
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO.format(vendor=vendor, flags=flags))
    assert matmul.gains(file) is expected
    assert matmul.gains(tmp_path / "absent") is False


SIZES = """
import sys
import psutil
import torch
from llmops_kernel.train.performance import matmul

if sys.argv[1] == "bounded":
    matmul.bound_caches()
assert matmul.install()
right = torch.randn(512, 4096)
before = None
for rows in range(64, 464):
    torch.randn(rows, 512) @ right
    if rows == 164:
        before = psutil.Process().memory_info().rss
print(psutil.Process().memory_info().rss - before)
"""


def test_memory_does_not_grow_with_each_length_of_a_batch(onednn: None) -> None:
    grown = {}
    for kind in ("bounded", "unbounded"):
        done = subprocess.run(
            [sys.executable, "-c", SIZES, kind],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            env={k: v for k, v in os.environ.items() if not k.endswith("CACHE_CAPACITY")},
        )
        grown[kind] = int(done.stdout) / 2**20
    print(grown)
    assert grown["bounded"] < grown["unbounded"] / 4
