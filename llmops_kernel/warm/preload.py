"""What the fork server imports: the libraries around user code, never user code."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

# Whole names, as a run imports them: a package's own __init__ is often lazy.
DEFAULT_MODULES = (
    "numpy",
    "pydantic",
    "yaml",
    "psutil",
    "aiohttp",
    "jsonschema",
    "google.protobuf.json_format",
    "pandas",
    "pyarrow.parquet",
    "pyarrow.fs",
    "fsspec",
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.utils.cpp_extension",
    "safetensors.torch",
    "transformers",
    "transformers.trainer",
    "transformers.training_args",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.integrations.deepspeed",
    "transformers.integrations.integration_utils",
    "tokenizers",
    "datasets",
    "accelerate",
    "peft",
    "deepspeed",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.ops.adam",
)


def preload(modules: list[str]) -> dict[str, Any]:
    """Import each; what is not there or breaks is told, not fatal.

    Returns {"modules": {name: seconds}, "missing": {name: reason}}.
    """
    # Asks the driver's library for devices instead of initialising CUDA, which would not
    # survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    took: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name in modules:
        began_s = time.perf_counter()
        try:
            importlib.import_module(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"[:300]
        else:
            took[name] = round(time.perf_counter() - began_s, 3)
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
    return {"modules": took, "missing": missing, "problem": unsafe()}


def unsafe() -> str:
    """Why a fork of this process would not be like a fresh one; else empty."""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia-uvm"):
            return "an imported module initialised CUDA"
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate()[1:])
        return f"an imported module started threads: {names}"
    return ""


def fingerprint(paths: list[str]) -> dict[str, int]:
    """Modification times (ns) that an installation into these folders changes."""
    found = {}
    for path in paths:
        try:
            found[path] = Path(path).stat().st_mtime_ns
        except OSError:
            found[path] = 0
    return found
