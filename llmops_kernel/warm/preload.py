"""The imports of the fork server: the libraries that user code needs, never user code."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from llmops_kernel.warm import ray_identity

MUON = "deepspeed.runtime.zero.muon.muon_optimizer"
"""Imported by every engine with ZeRO. Its three decorators import torch's whole compiler."""

# Full names, as a run imports them: a package's own __init__ is often lazy.
DEFAULT_MODULES = (
    # First: memory is searched for it afterwards, which should be small then.
    "ray",
    "numpy",
    "pydantic",
    "pydantic.v1",
    "pydantic.dataclasses",
    "pydantic.type_adapter",
    "yaml",
    "psutil",
    "aiohttp",
    "jsonschema",
    "google.protobuf.json_format",
    "google.protobuf.struct_pb2",
    "google.protobuf.timestamp_pb2",
    "google.protobuf.internal.builder",
    "requests",
    "click",
    "colorful",
    "platformdirs",
    "wcwidth",
    "rich.live",
    "pdb",
    "logging.config",
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
    "transformers.conversion_mapping",
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
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.module_inject.auto_ep_layer",
    "torch.profiler._cupti_monitor",
    MUON,
    "deepspeed.comm.mori",
    "ray.train.torch",
    "ray.tune",
    "ray._private.arrow_serialization",
    "ray.train.v2._internal.execution.controller",
    "ray.train.v2._internal.execution.worker_group",
    "ray.dashboard.modules.job.job_supervisor",
)
_LOOKS_FOR_BITSANDBYTES = (
    ("peft.import_utils", "is_bnb_available"),
    ("peft.import_utils", "is_bnb_4bit_available"),
    ("transformers.utils.import_utils", "is_bitsandbytes_available"),
)
"""Functions that remember their answer."""


_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED of cuda.h: what each function of the driver returns until `cuInit`."""


def preload(modules: list[str]) -> dict[str, Any]:
    """Import each module. A missing or failing one is reported, not fatal.

    Returns {"modules": {name: seconds}, "missing": {name: reason}}.
    """
    # Ask the driver's library for devices instead of initialising CUDA, which would not survive a
    # fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    took: dict[str, float] = {}
    missing: dict[str, str] = {}
    with_bitsandbytes = "bitsandbytes" in modules
    with contextlib.nullcontext() if with_bitsandbytes else without_bitsandbytes():
        for name in modules:
            began_s = time.perf_counter()
            try:
                if name == "ray":
                    ray_identity.load()
                with without_compiler() if name == MUON else contextlib.nullcontext():
                    importlib.import_module(name)
            except Exception as error:
                missing[name] = f"{type(error).__name__}: {error}"[:300]
            else:
                took[name] = round(time.perf_counter() - began_s, 3)
    _fill_caches()
    if "ray" in took:
        try:
            ray_identity.loaded()
        except ray_identity.NotFoundError as error:
            missing["ray"] = str(error)
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
    return {"modules": took, "missing": missing, "problem": unsafe()}


@contextlib.contextmanager
def without_collections(*, freeze: bool = True) -> Iterator[None]:
    """Look for no garbage while modules are imported, which is a third of the time it takes.

    Importing makes little garbage. What exists at the end is left out of all later searches
    (`gc.freeze`): the first of them would begin with it, and would copy every page in a fork.
    `freeze=False` is for what may go again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if freeze:
                gc.freeze()
            gc.enable()


@contextlib.contextmanager
def without_bitsandbytes() -> Iterator[None]:
    """Hide bitsandbytes, which only weights of few bits need.

    PEFT imports it for any model where it is installed. That takes time, and initialises CUDA,
    which would not survive a fork.
    """
    if "bitsandbytes" in sys.modules:
        yield
        return
    _forget_whether_it_is_installed()
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]  # so nothing finds it
    try:
        yield
    finally:
        del sys.modules["bitsandbytes"]
        _forget_whether_it_is_installed()


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Have functions that an imported module decorates with `torch.compile` decorated later.

    They are when the first of them is called, and compiled then as ever. Decorating imports
    `torch._inductor`: 0.5 s and 40 MiB, which a run that calls none of them does not need.
    """
    torch: Any = importlib.import_module("torch")
    decorate = torch.compile
    waiting: list[Callable[[], object]] = []
    torch.compile = functools.partial(_decorate_later, waiting, decorate)
    try:
        yield
    finally:
        torch.compile = decorate


def _decorate_later(
    waiting: list[Callable[[], object]],
    decorate: Callable[..., Any],
    function: Any = None,
    **options: Any,
) -> Any:
    """Take the place of `torch.compile(function, **options)`, also as a decorator factory."""
    if function is None:
        return functools.partial(_decorate_later, waiting, decorate, **options)
    if not inspect.isfunction(function):
        return decorate(function, **options)

    @functools.cache
    def decorated() -> Any:
        compiled = decorate(function, **options)
        # One that calls another must find it decorated: its code is what the compiler reads.
        if function.__globals__.get(function.__name__) is call:
            function.__globals__[function.__name__] = compiled
        return compiled

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for decorate_waiting in waiting:
            decorate_waiting()
        return decorated()(*args, **kwargs)

    waiting.append(decorated)
    return call


def _forget_whether_it_is_installed() -> None:
    for module, name in _LOOKS_FOR_BITSANDBYTES:
        function: Any = getattr(sys.modules.get(module), name, None)
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _fill_caches() -> None:
    """Compute what a library computes once per process and always the same.

    That is 0.25 s of regular expressions.
    """
    mapping = sys.modules.get("transformers.conversion_mapping")
    if mapping is not None:
        with contextlib.suppress(Exception):  # Another release: it is computed later then.
            mapping.get_checkpoint_conversion_mapping("llama")


def unsafe() -> str:
    """Return why a fork of this process would differ from a new process; empty if it would not."""
    if _has_initialised_cuda():
        return "an imported module initialised CUDA"
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate()[1:])
        return f"an imported module started threads: {names}"
    return ""


def _has_initialised_cuda() -> bool:
    """Return whether `cuInit` was called in this process, which would not survive a fork.

    Open devices do not show it: to count GPUs, NVIDIA's management library opens them all.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:  # Not loaded.
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED)


def installed(path: Iterable[str]) -> list[str]:
    """Return the folders among `path` that packages are installed into, not a project's own."""
    names = ("site-packages", "dist-packages")
    return [
        entry for entry in path if Path(entry).name in names or any(Path(entry).glob("*.dist-info"))
    ]


def own_files() -> list[str]:
    """Return the modules of this package: a server and a launcher of two versions must not talk."""
    return [str(path) for path in sorted(Path(__file__).parent.glob("*.py"))]


def fingerprint(paths: list[str]) -> dict[str, int]:
    """Return modification times (ns) that change when packages are installed into these folders."""
    times = {}
    for path in paths:
        try:
            times[path] = Path(path).stat().st_mtime_ns
        except OSError:
            times[path] = 0
    return times
