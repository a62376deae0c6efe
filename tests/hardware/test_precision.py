"""What `model.dtype: auto` stands for on each kind of device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmops_kernel.hardware.precision import (
    DeviceFacts,
    choose_dtype,
    cpu_facts,
    gpu_facts,
    processor,
    used_flags,
    weakest,
)

AMPERE = DeviceFacts(name="NVIDIA A100-SXM4-80GB", is_gpu=True, has_bf16=True)
TURING = DeviceFacts(name="Tesla T4", is_gpu=True, has_bf16=False)
ZEN_5 = DeviceFacts(name="this CPU", is_gpu=False, has_bf16=True)
LAPTOP = DeviceFacts(name="this CPU", is_gpu=False, has_bf16=False)
FLAGS = "fpu sse2 avx avx2 avx512f avx512bw avx512_vnni avx512_bf16 amx_bf16 amx_tile"


@pytest.mark.parametrize(
    ("device", "trains", "dtype", "words"),
    [
        (AMPERE, True, "bfloat16", "has it, and what is trained is kept in float32"),
        (AMPERE, False, "bfloat16", "NVIDIA A100-SXM4-80GB has it"),
        (TURING, True, "float32", "Tesla T4 has no bfloat16, and values overflow in float16"),
        (TURING, False, "float32", "overflow in float16"),
        (ZEN_5, True, "float32", "CPUs train in it"),
        (ZEN_5, False, "bfloat16", "this CPU has instructions for it"),
        (LAPTOP, True, "float32", "CPUs train in it"),
        (LAPTOP, False, "float32", "this CPU has no bfloat16 instructions"),
    ],
)
def test_auto_is_what_is_fast_and_safe(
    device: DeviceFacts, trains: bool, dtype: str, words: str
) -> None:
    found = choose_dtype("auto", device, trains=trains)
    assert found.dtype == dtype
    assert words in found.reason
    assert found.summary == f"{dtype} ({found.reason})"


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("device", [AMPERE, TURING, ZEN_5, LAPTOP])
def test_what_a_config_names_stays_and_needs_no_words(asked: str, device: DeviceFacts) -> None:
    for trains in (True, False):
        found = choose_dtype(asked, device, trains=trains)
        assert (found.dtype, found.summary) == (asked, "")


def test_one_gpu_without_bfloat16_decides_for_all_workers() -> None:
    assert weakest([AMPERE, TURING, AMPERE]) == TURING
    assert weakest([AMPERE, AMPERE]) == AMPERE


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    """Two processors as Linux writes them; the second one must not be read."""
    path = tmp_path / "cpuinfo"
    first = f"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: a : b\nflags\t\t: {FLAGS}\n"
    path.write_text(first + "\nprocessor\t: 1\nflags\t\t: fpu\n")
    return path


@pytest.mark.parametrize(
    ("environ", "has_bf16", "has_avx512"),
    [
        ({}, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "ALL"}, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, False, True),
        ({"ONEDNN_MAX_CPU_ISA": "avx2"}, False, False),
        ({"DNNL_MAX_CPU_ISA": "AVX2"}, False, False),
        ({"ATEN_CPU_CAPABILITY": "avx2"}, False, False),
        ({"ATEN_CPU_CAPABILITY": "avx512"}, True, True),
    ],
)
def test_variables_that_imitate_a_lesser_cpu_count(
    cpuinfo: Path, environ: dict[str, str], has_bf16: bool, has_avx512: bool
) -> None:
    assert cpu_facts(cpuinfo, environ=environ).has_bf16 is has_bf16
    assert ("avx512f" in used_flags(processor(cpuinfo), environ=environ)) is has_avx512


def test_a_processor_of_which_the_system_says_nothing_has_no_bfloat16(tmp_path: Path) -> None:
    assert processor(tmp_path / "none") == {}
    assert not cpu_facts(tmp_path / "none", environ={}).has_bf16


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_this_machine_is_seen_as_torch_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)
    found = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    assert cpu_facts().has_bf16 == found


class Cuda:
    """The part of `torch.cuda` that is asked, for a card of another machine."""

    def __init__(self, name: str, major: int) -> None:
        self._name, self._major = name, major

    def get_device_name(self) -> str:
        return self._name

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return including_emulation or self._major >= 8


def test_an_emulated_format_of_a_gpu_does_not_count() -> None:
    """PyTorch says by default that a T4 supports bfloat16, which it emulates, slowly."""
    assert gpu_facts(Cuda("Tesla T4", 7)) == TURING
    assert gpu_facts(Cuda("NVIDIA A100-SXM4-80GB", 8)) == AMPERE
