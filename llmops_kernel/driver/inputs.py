"""Journals what a run computes with: machine, versions, content of its data and its model."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

from llmops_kernel.hardware.precision import cpu_name, processor, used_flags
from llmops_kernel.metrics.events import Event, InputsEvent
from llmops_kernel.metrics.inputs import RunInputs

_PACKAGES = (
    *("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "ray"),
    *("tokenizers", "numpy", "llmops-kernel"),
)
_WIDEST = (("amx_tile", "AMX"), ("avx512f", "AVX512"), ("avx2", "AVX2"))


@cache
def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def machine(*, computes: bool = True) -> dict[str, str]:
    """Return the facts of this node's processor.

    Of a process that `computes` itself also its threads and PyTorch's settings, and its GPU.
    """
    flags = used_flags(processor())
    facts = {"cpu": cpu_name(), "architecture": platform.machine()}
    if widest := next((name for flag, name in _WIDEST if flag in flags), ""):
        facts["instructions"] = widest
    torch: Any = sys.modules.get("torch")  # Not imported for this: its import takes seconds.
    if torch is None or not computes:
        return facts
    facts["threads"] = str(torch.get_num_threads())
    facts["deterministic"] = str(torch.are_deterministic_algorithms_enabled()).lower()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        facts["gpu"] = str(torch.cuda.get_device_name())
        facts["cuda"] = str(torch.version.cuda)
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


class InputsLater:
    """Gathers the facts in a thread, as hashing takes as long as reading, and journals them."""

    def __init__(self, emit: Callable[[Event], object], gather: Callable[[], RunInputs]) -> None:
        """Return at once. The journal's writer is safe for threads."""
        self._emit, self._gather = emit, gather
        self._thread = threading.Thread(target=self._run, name="llmops-inputs", daemon=True)
        self._thread.start()

    def wait(self, *, limit_s: float = 60.0) -> None:
        """Wait for the event, at the end of a run."""
        self._thread.join(limit_s)

    def _run(self) -> None:
        with suppress(Exception):  # No fact is worth a run; what is missing is shown as unknown.
            self._emit(InputsEvent(inputs=self._gather()))
