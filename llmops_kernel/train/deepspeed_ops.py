"""DeepSpeed's operations of the host: compiled before they are needed, by one process at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.hardware.priority import give_share, has_idle_time
from llmops_kernel.store.compiled_ops import (
    FOLDER_ENV_VAR,
    SHARED_MEMORY,
    compiler_pid,
    compiling_since_s,
    is_compiled,
    lock_file,
    marked,
    ops_folder,
    will_compile,
)
from llmops_kernel.train.context import WorkerContext

_HURRY_S = 1.0


def needed(config: TrainingConfig, *, use_gpu: bool) -> tuple[str, ...]:
    """Return DeepSpeed's builders whose operations this training loads on the host."""
    if not isinstance(config.parallelism, ZeroStrategy):
        return ()
    place = config.parallelism.offload_optimizer
    optimizer = ("CPUAdamBuilder",) if place else ()
    if use_gpu:
        return (*optimizer, "AsyncIOBuilder") if place == "nvme" else optimizer
    return (SHARED_MEMORY, *optimizer)


def compile_ops(names: tuple[str, ...], *, root: Path | None = None) -> None:
    """Load the operations, compiling those that are not in the cache yet.

    torch marks a compilation with a file that a killed process leaves behind, and every later
    process would wait forever. The kernel frees our lock when its holder dies, so a file that is
    found under the lock has no owner.
    """
    if not names:
        return
    folder = root or ops_folder()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[FOLDER_ENV_VAR] = str(folder)
    from deepspeed.accelerator import get_accelerator

    with _locked(folder):
        for stale_lock in folder.glob("*/lock"):
            stale_lock.unlink(missing_ok=True)
        with nullcontext() if is_compiled(names, folder=folder) else marked(folder):
            for name in names:
                builder = get_accelerator().create_op_builder(name)
                if builder is not None and builder.is_compatible(verbose=False):
                    builder.load(verbose=False)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock. Another holder compiles for this process too: it gets its share."""
    lock = FileLock(str(lock_file(folder)))
    while True:
        try:
            lock.acquire(timeout=_HURRY_S)
            break
        except Timeout:
            # Beside other work, a compilation in advance (`warm.keeper`) gets next to nothing. One
            # that itself waits for the lock is in no hurry.
            pid = compiler_pid(folder)
            if pid and not has_idle_time(0) and not give_share(pid) and has_idle_time(pid):
                # It would keep this run waiting for ever: this process compiles in its place.
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
    try:
        yield
    finally:
        lock.release()


def compile_for(config: TrainingConfig, context: WorkerContext) -> None:
    """Load what a training needs; where it is compiled first, that is a phase of the run."""
    names = needed(config, use_gpu=context.use_gpu)
    if names and (not is_compiled(names) or compiling_since_s() is not None):
        with context.phase("compile", detail=", ".join(names)):
            compile_ops(names)
    else:
        compile_ops(names)


def prepare() -> None:
    """Compile, before any run needs it, the operation that every ZeRO run on CPUs loads.

    Does nothing where it is compiled already, on GPUs, and without a compiler.
    """
    if will_compile():
        compile_ops((SHARED_MEMORY,))


if __name__ == "__main__":
    prepare()
