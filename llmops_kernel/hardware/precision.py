"""The number format that `model.dtype: auto` stands for: a rule of facts about a device.

Training, scoring, chat and export ask this one rule. What it gives is said at the start of a run,
with its reason.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AUTO = "auto"
_CPUINFO = Path("/proc/cpuinfo")
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_MAX_ISA = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_BELOW_AVX512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2")
_BELOW_BF16 = (*_BELOW_AVX512, "AVX512_CORE", "AVX512_CORE_VNNI")


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """The properties of a device that the choice of a number format depends on."""

    name: str
    """`NVIDIA H100 80GB HBM3`; of a CPU `this CPU`."""
    is_gpu: bool
    has_bf16: bool
    """True if it computes bfloat16 by instructions of its own. Emulated it is slow."""


@dataclass(frozen=True)
class Precision:
    """A number format, and why it was chosen."""

    dtype: str
    reason: str = ""
    """Empty: the config names the format."""

    @property
    def summary(self) -> str:
        """Return `bfloat16 (this CPU has bfloat16 instructions)`; empty if nothing was chosen."""
        return f"{self.dtype} ({self.reason})" if self.reason else ""


def choose_dtype(dtype: str, device: DeviceFacts, *, trains: bool) -> Precision:
    """Return the format that is fast and safe on a device; what a config names stays as it is.

    `float16` is never chosen: its largest number is 65,504, and models that were made in bfloat16
    have larger ones inside. Training on CPUs is float32 everywhere, so that a loss does not depend
    on the processor.
    """
    if dtype != AUTO:
        return Precision(dtype)
    name = device.name
    if device.is_gpu and not device.has_bf16:
        return Precision("float32", f"{name} has no bfloat16, and values overflow in float16")
    if device.is_gpu:
        training_note = ", and what is trained is kept in float32" if trains else ""
        return Precision("bfloat16", f"{name} has it{training_note}")
    if trains:
        return Precision("float32", "CPUs train in it")
    if device.has_bf16:
        return Precision("bfloat16", f"{name} has instructions for it")
    return Precision("float32", f"{name} has no bfloat16 instructions")


def weakest(devices: Sequence[DeviceFacts]) -> DeviceFacts:
    """Return the device that decides where several compute one run."""
    return next((device for device in devices if not device.has_bf16), devices[0])


def gpu_facts(cuda: Any) -> DeviceFacts:
    """Return the facts of the current GPU; `cuda` is the module `torch.cuda`."""
    name = str(cuda.get_device_name())
    # NVIDIA from compute capability 8.0 (Ampere), and AMD's.
    has_bf16 = bool(cuda.is_bf16_supported(including_emulation=False))
    return DeviceFacts(name=name, is_gpu=True, has_bf16=has_bf16)


def cpu_facts(cpuinfo: Path = _CPUINFO, *, environ: Mapping[str, str] = os.environ) -> DeviceFacts:
    """Return the facts of this machine's processor; without `/proc/cpuinfo` it has no bfloat16."""
    has_bf16 = not _BF16_FLAGS.isdisjoint(used_flags(processor(cpuinfo), environ=environ))
    return DeviceFacts(name="this CPU", is_gpu=False, has_bf16=has_bf16)


def processor(cpuinfo: Path = _CPUINFO) -> dict[str, str]:
    """Return the first processor's entry in /proc/cpuinfo; empty if there is none."""
    facts: dict[str, str] = {}
    try:
        with cpuinfo.open() as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    break  # An empty line ends a processor.
                facts[name.strip()] = value.strip()
    except OSError:
        pass
    return facts


def cpu_name() -> str:
    """Return the processor's name, or its architecture where the system does not say."""
    return processor().get("model name") or platform.processor() or platform.machine()


def used_flags(
    facts: Mapping[str, str], *, environ: Mapping[str, str] = os.environ
) -> frozenset[str]:
    """Return the instruction sets that PyTorch uses: its variables may imitate a lesser CPU."""
    flags = frozenset(facts.get("flags", "").split())
    most = next((environ[name].upper() for name in _MAX_ISA if environ.get(name)), "")
    if most in _BELOW_AVX512 or environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        return frozenset(flag for flag in flags if not flag.startswith(("avx512", "amx")))
    return flags - _BF16_FLAGS if most in _BELOW_BF16 else flags
