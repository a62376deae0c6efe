"""Describes failures in the user's terms: out of memory, the line of a hook, a full disk."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterable
from pathlib import Path

import psutil

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.disk import is_disk_full
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import FailureEvent

_PEER_LOSS = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "gloo",
    "nccl",
    "socket timeout",
    "distbackenderror",
)
_NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc", "status_alloc_failed")
"""Of PyTorch on a CPU; CUDA and NCCL; C++; cuBLAS and cuDNN."""


def describe(
    error: BaseException, *, rank: int, workspace: Path, config: TrainingConfig | None = None
) -> FailureEvent:
    """Return the failure event of one rank, with the deepest line in the user's workspace."""
    shortage = _out_of_memory(error)
    message, remedy = _explain(error, config, shortage)
    file, line = _user_line(error, workspace)
    return FailureEvent(
        error=_name(error),
        message=message,
        remedy=remedy,
        ranks=(rank,),
        traceback="".join(traceback.format_exception(error)).strip(),
        file=file,
        line=line,
        out_of_memory=shortage is not None,
    )


def _name(error: BaseException) -> str:
    """Return the class's name; one name for a full disk, which libraries report differently."""
    cause = _cause(error)
    is_own = isinstance(cause, LLMOpsError)
    return "DiskFull" if not is_own and is_disk_full(cause) else type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """Return the user's own exception for a hook, else the error itself."""
    wrapped = isinstance(error, LLMOpsError) and error.__cause__ is not None
    return error.__cause__ or error if wrapped and type(error).__name__ == "HookError" else error


def _explain(
    error: BaseException, config: TrainingConfig | None, shortage: BaseException | None
) -> tuple[str, str]:
    if shortage is not None:
        request = _first_line(shortage)
        return f"Out of memory: {request} ({_free_memory()})", memory_remedy(config)
    if isinstance(error, LLMOpsError):
        return error.message, error.remedy
    if is_disk_full(error):
        return (
            f"The disk is full{_folder_written(error)}.",
            "free some space (`llmops rm` deletes old runs) or set LLMOPS_HOME to a larger disk,"
            " then"
            " `llmops retry`; `llmops resubmit RUN checkpoint.keep=1` keeps fewer checkpoints",
        )
    return f"{type(error).__name__}: {_first_line(error)}", ""


def _folder_written(error: BaseException) -> str:
    """Return the folder alone: ranks that wrote different files of it failed alike."""
    name = error.filename if isinstance(error, OSError) else None
    return f": a file in {Path(os.fsdecode(name)).parent} could not be written" if name else ""


def _free_memory() -> str:
    memory = psutil.virtual_memory()
    return (
        f"the node has {memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB of host memory"
        " free"
    )


def memory_remedy(config: TrainingConfig | None) -> str:
    """Return up to three settings that need less memory and that this config does not have yet."""
    if config is None:
        return "`llmops resubmit RUN` with a lower training.micro_batch_size or data.max_length"
    parallelism = config.parallelism
    ideas = []
    if (micro := config.micro_batch_size) > 1:
        ideas.append(
            f"training.micro_batch_size={micro // 2} (now {micro}, the global batch size is kept)"
        )
    if not parallelism.gradient_checkpointing:
        ideas.append("parallelism.gradient_checkpointing=true")
    ideas.append(f"data.max_length={max(8, config.data.max_length // 2)}")
    if config.method.type == "full":
        ideas.append("method=lora")
    least = "zero2" if config.method.type == "qlora" else "zero3"
    shards_all = "weights" in parallelism.sharded or parallelism.strategy == least
    if not shards_all and parallelism.num_workers > 1:
        ideas.append(f"parallelism={least}")
    elif isinstance(parallelism, ZeroStrategy) and not parallelism.offload_optimizer:
        ideas.append("parallelism.offload_optimizer=true")
    return "`llmops resubmit RUN` with one of: " + "; ".join(ideas[:3])


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on the device or the host; also in a hook of the user's."""
    return _out_of_memory(error) is not None


def _out_of_memory(error: BaseException) -> BaseException | None:
    """Return the error of the allocation; that of a hook or a row is a cause of the one raised."""
    return next((one for one in _chain(error) if _says_out_of_memory(one)), None)


def _says_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in text for words in _NO_MEMORY)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )


def _chain(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _user_line(error: BaseException, workspace: Path) -> tuple[str, int | None]:
    """Return file and line of the deepest frame whose file is in the workspace.

    Of all causes: an error of a row is raised again with the name of its source.
    """
    deepest: tuple[str, int | None] = ("", None)
    root = workspace.resolve()
    for exception in _chain(error):
        if (
            isinstance(exception, SyntaxError)
            and exception.filename
            and root in Path(exception.filename).parents
        ):
            return str(Path(exception.filename).relative_to(root)), exception.lineno
        for frame in traceback.extract_tb(exception.__traceback__):
            path = Path(frame.filename).resolve()
            if root in path.parents:
                deepest = (str(path.relative_to(root)), frame.lineno)
    return deepest


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


def is_peer_loss(text: str) -> bool:
    """Return whether a collective broke because another worker is gone: a symptom, no cause."""
    lowered = text.lower()
    return any(word in lowered for word in _PEER_LOSS)


def group(failures: Iterable[FailureEvent]) -> list[FailureEvent]:
    """Return one event for ranks that failed alike.

    Ranks that only lost their peer are left out if the cause is known.
    """
    grouped: dict[tuple[str, str, str], FailureEvent] = {}
    for failure in failures:
        key = (failure.error, failure.message, failure.file)
        if key in grouped:
            ranks = sorted({*grouped[key].ranks, *failure.ranks})
            grouped[key] = grouped[key].model_copy(update={"ranks": tuple(ranks)})
        else:
            grouped[key] = failure
    causes = [event for event in grouped.values() if not is_peer_loss(event.error + event.message)]
    return causes or list(grouped.values())
