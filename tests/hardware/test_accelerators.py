from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import ConfigError
from llmops_kernel.hardware.accelerators import (
    ACCELERATORS,
    find,
    peak_flops,
    peak_flops_override,
)


@pytest.mark.parametrize(
    ("device_name", "name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4),
        ("NVIDIA H100 PCIe", "H100 PCIe", 756),
        ("NVIDIA H100 NVL", "H100 NVL", 835),
        ("NVIDIA H200", "H200 SXM", 989.4),
        ("NVIDIA H200 NVL", "H200 NVL", None),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB", 312),
        ("A100-SXM4-40GB", "A100 SXM 40GB", 312),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB", 312),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 312),
        ("NVIDIA L40S", "L40S", 362.05),
        ("NVIDIA L40", "L40", 181.05),
        ("NVIDIA L4", "L4", 121),
        ("NVIDIA A10", "A10", 125),
        ("NVIDIA A10G", "A10G", None),
        ("NVIDIA B200", "B200", 2250),
        ("NVIDIA GB200", "GB200", 2500),
        ("NVIDIA GH200 480GB", "GH200", 989.4),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB", None),
        ("Tesla T4", "T4", None),
        ("AMD Instinct MI300X OAM", "MI300X", 1307.4),
        ("AMD Instinct MI250X", "MI250X", 191.5),
    ],
)
def test_a_device_name_finds_its_exact_variant(
    device_name: str, name: str, tflops: float | None
) -> None:
    accelerator = find(device_name)
    assert accelerator is not None
    assert accelerator.name == name
    expected = None if tflops is None else pytest.approx(tflops * 1e12)
    assert peak_flops(device_name, "bfloat16") == expected
    assert peak_flops(device_name, "torch.bfloat16") == expected


@pytest.mark.parametrize(
    "device_name",
    [
        "",
        "Some Future GPU",
        "NVIDIA",
        "NVIDIA H100",  # Which one?
        "NVIDIA A100",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",  # A slice has a part of the peak.
        "NVIDIA H100 80GB HBM2e",
        "NVIDIA H200 SXM Ultra",
        "NVIDIA L40S-48Q",  # vGPU
        "NVIDIA RTX A6000",
        "NVIDIA GeForce RTX 4090",
        "AMD Instinct MI250X/MI250",
        "AMD Instinct MI355X",
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    ],
)
def test_an_unknown_device_is_none_and_never_a_neighbour(device_name: str) -> None:
    assert find(device_name) is None
    assert peak_flops(device_name, "bfloat16") is None


@pytest.mark.parametrize(
    ("device_name", "dtype", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5),  # Not TF32's 156.
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA H100 80GB HBM3", "float32", 67),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.7),
        ("NVIDIA L40S", "tf32", 183),  # Not 366, which is sparse.
        ("Tesla T4", "tf32", None),
        ("AMD Instinct MI300X", "tf32", None),
        ("NVIDIA H100 80GB HBM3", "float16", 989.4),
        ("NVIDIA H100 NVL", "float32", None),
        ("NVIDIA H100 80GB HBM3", "float8_e4m3fn", None),
        ("Tesla T4", "bfloat16", None),
        ("Tesla T4", "float16", 65),
        ("Tesla V100-PCIE-16GB", "float16", 112),
    ],
)
def test_peaks_by_dtype(device_name: str, dtype: str, tflops: float | None) -> None:
    expected = None if tflops is None else pytest.approx(tflops * 1e12)
    assert peak_flops(device_name, dtype) == expected


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda accelerator: accelerator.name)
def test_each_row_is_cited_dense_and_plausible(accelerator) -> None:
    assert accelerator.source
    assert accelerator.unit in ("GPU", "GCD")
    assert accelerator.device_names
    assert set(accelerator.peak_flops) <= {"float32", "tf32", "bfloat16", "float16"}
    for peak in accelerator.peak_flops.values():
        assert 5e12 < peak < 3e15
    tf32, half = (accelerator.peak_flops.get(dtype) for dtype in ("tf32", "bfloat16"))
    assert tf32 is None or tf32 == pytest.approx(half / 2, rel=0.011)
    assert accelerator.memory_bytes is None or 15e9 < accelerator.memory_bytes < 300e9
    bandwidth = accelerator.bandwidth_bytes_per_second
    assert bandwidth is None or 250e9 < bandwidth <= 8e12


def test_no_name_is_claimed_twice() -> None:
    names = [name.casefold() for row in ACCELERATORS for name in (row.name, *row.device_names)]
    assert len(names) == len(set(names))


def test_case_spaces_and_the_makers_name_do_not_matter() -> None:
    assert find("  nvidia  h100 pcie ") is find("H100 PCIe") is find("NVIDIA H100 PCIe")


@given(st.sampled_from(ACCELERATORS), st.text(min_size=1, max_size=8))
def test_a_longer_name_is_another_device(accelerator, extra: str) -> None:
    known = {name.casefold() for row in ACCELERATORS for name in (row.name, *row.device_names)}
    name = accelerator.device_names[0] + " x" + extra
    assert name.casefold() not in known
    assert find(name) is None


def test_the_override_is_in_tflops() -> None:
    assert peak_flops_override("989.4") == pytest.approx(989.4e12)
    assert peak_flops_override(None) is None
    assert peak_flops_override(" ") is None


@pytest.mark.parametrize("text", ["fast", "0", "-3", "nan", "inf", "989e12x"])
def test_a_bad_override_says_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match="LLMOPS_PEAK_TFLOPS") as caught:
        peak_flops_override(text)
    assert "TFLOPS" in caught.value.remedy
