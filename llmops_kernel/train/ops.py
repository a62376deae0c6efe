"""DeepSpeed's CPU operations: compiled before they are needed, by one process at a time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from filelock import FileLock

from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.runs.paths import cache

CACHE_ENV_VAR = "TORCH_EXTENSIONS_DIR"


def needed(config: TrainingConfig, *, use_gpu: bool) -> tuple[str, ...]:
    """Names of DeepSpeed's builders that this training will ask for on a CPU."""
    if use_gpu or config.parallelism.strategy == "ddp":
        return ()
    offloads = config.parallelism.offload_optimizer
    return ("ShareMemCommBuilder", *(["CPUAdamBuilder"] if offloads else []))


def compile_ops(names: tuple[str, ...], *, root: Path | None = None) -> None:
    """Load the operations, compiling what is not in the cache yet.

    torch marks a compilation with a file that a killed process leaves behind, and everybody
    after it would wait for ever. Under a lock that the kernel frees with its holder, such a
    file is known to be nobody's.
    """
    if not names:
        return
    folder = root or _folder()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[CACHE_ENV_VAR] = str(folder)
    from deepspeed.accelerator import get_accelerator

    with FileLock(str(folder / ".llmops.lock")):
        for left in folder.glob("*/lock"):
            left.unlink(missing_ok=True)
        for name in names:
            builder = get_accelerator().create_op_builder(name)
            if builder is not None and builder.is_compatible(verbose=False):
                builder.load(verbose=False)


def _folder() -> Path:
    return Path(os.environ.get(CACHE_ENV_VAR) or cache() / "torch_extensions")


def prepare() -> None:
    """Compile, before any run wants it, the operation that every ZeRO run on CPUs loads.

    Nothing where it is there already, where GPUs are (they need none) or without a compiler.
    """
    is_there = any(_folder().glob("*shm_comm*/*.so"))
    if is_there or Path("/dev/nvidia0").exists() or shutil.which("c++") is None:
        return
    compile_ops(("ShareMemCommBuilder",))


if __name__ == "__main__":
    prepare()
