"""Replaces state that libraries took from the server's environment by the child's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

from llmops_kernel.warm.ray_identity import set_identity

_self_seeded: weakref.WeakSet[random.Random] = weakref.WeakSet()
"""Generators of libraries, seeded by the system when they were made: each process has others."""


def refresh(env: dict[str, str], server_env: dict[str, str]) -> None:
    """Run in the child before its program; only modules that are loaded are touched."""
    time.tzset()
    set_identity(env)
    _random_numbers()
    _standard_library()
    _accelerator()
    if env.get("OMP_NUM_THREADS") != server_env.get("OMP_NUM_THREADS"):
        set_threads(env.get("OMP_NUM_THREADS", ""))
    if env.get("HF_HUB_OFFLINE") != server_env.get("HF_HUB_OFFLINE"):
        _offline(env.get("HF_HUB_OFFLINE", ""))


@contextlib.contextmanager
def noting_generators() -> Iterator[None]:
    """Note the generators that are made meanwhile, but for those with a seed of their own."""
    generator_class: Any = random.Random
    seed = generator_class.seed

    def noted(generator: random.Random, a: Any = None, version: int = 2) -> None:
        (_self_seeded.add if a is None else _self_seeded.discard)(generator)
        seed(generator, a, version)

    generator_class.seed = noted
    try:
        yield
    finally:
        generator_class.seed = seed


def _random_numbers() -> None:
    """Seed the generators of libraries: Python's own seeds itself after a fork, others do not.

    Two runs would have the same weights and dropout; `datasets` names cached files at random, and
    the second run would be given the first one's rows.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.default_generator.seed()  # Those of GPUs are made when they are first used.
    for generator in _self_seeded:
        generator.seed()


def _standard_library() -> None:
    """Reset what modules keep from their import: the folder, the temporary folder, a key, a time.

    A log's `%(relativeCreated)d` counts from that time.
    """
    logging: Any = sys.modules.get("logging")
    if logging is not None:  # In nanoseconds since Python 3.13.
        is_in_s = isinstance(logging._startTime, float)
        logging._startTime = time.time() if is_in_s else time.time_ns()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.path.abspath(os.getcwd())  # type: ignore[attr-defined]
        process.current_process().authkey = os.urandom(32)


def _accelerator() -> None:
    """Reset DeepSpeed's accelerator, which is found only once: a child may see other devices."""
    module = sys.modules.get("deepspeed.accelerator.real_accelerator")
    if module is None:
        module = sys.modules.get("accelerator.real_accelerator")
    if module is not None and _has_cuda():
        module.ds_accelerator = None  # type: ignore[attr-defined]


def _has_cuda() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.version.cuda)


def set_threads(value: str) -> None:
    """Set the threads as if the libraries had read OMP_NUM_THREADS when they started."""
    count = int(value) if value.isdigit() and int(value) > 0 else os.cpu_count() or 1
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
    for library, symbol in _openblas():
        with contextlib.suppress(AttributeError):
            getattr(library, symbol)(count)


def _openblas() -> list[tuple[Any, str]]:
    """Return each library's own copy of OpenBLAS, found among the mapped files."""
    paths = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "openblas" in path.rpartition("/")[2]:
                paths.add("/" + path)
    names = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_")
    return [(ctypes.CDLL(path), name) for path in sorted(paths) for name in names]


def _offline(value: str) -> None:
    is_offline = value.upper() in {"1", "ON", "YES", "TRUE"}
    for module, name in (
        ("huggingface_hub.constants", "HF_HUB_OFFLINE"),
        ("transformers.utils.hub", "_is_offline_mode"),
        ("datasets.config", "HF_HUB_OFFLINE"),
        ("datasets.config", "HF_DATASETS_OFFLINE"),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and hasattr(loaded, name):
            setattr(loaded, name, is_offline)
