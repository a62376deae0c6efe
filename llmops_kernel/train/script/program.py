"""Runs a script as `__main__`, the way the interpreter would, and describes how it failed."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.warm.plan import python_path

_NO_RANK = re.compile(
    r"KeyError: '(?:LOCAL_)?(?:RANK|WORLD_SIZE)'|KeyError: 'MASTER_(?:ADDR|PORT)'"
    r"|environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected"
)
"""Errors of a script that was written for `torchrun` when nothing has set its rank."""
_AS_TORCHRUN = (
    "start it as `torchrun` would: `llmops submit SCRIPT --workers 1`, or num_workers in a script"
    " config; RANK, WORLD_SIZE and MASTER_ADDR are then set"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_IN_WORKSPACE = re.compile(r"/working_dir_files/_ray_pkg_[0-9a-f]+/(.+)$")


def run_program(config: ScriptConfig, workspace: Path) -> FailureEvent | None:
    """Run the script in this process; return how it failed, None for exit status 0."""
    path = workspace / config.script
    use_environment(config.env, workspace)
    try:
        _execute(path, config)
    except SystemExit as end:
        return _exit_failure(end, config, workspace)
    except BaseException as error:
        error = error.with_traceback(_after_own_frames(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        failure: FailureEvent = describe_failure(error, workspace=workspace)
        if config.workers is None and not failure.remedy and _NO_RANK.search(failure.message):
            return failure.model_copy(update={"remedy": _AS_TORCHRUN})
        return failure
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    return None


def use_environment(env: Mapping[str, str], workspace: Path) -> None:
    """Set a config's variables; folders of PYTHONPATH come where an interpreter puts them.

    Ray's own, in which this package is, stay behind them, also for the script's children.
    """
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ.update(env)
    folders = python_path(dict(env), str(workspace))
    if folders:
        sys.path[0:0] = [folder for folder in folders if folder not in sys.path]
        entries = [*folders, *filter(None, inherited.split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))


def _execute(path: Path, config: ScriptConfig) -> None:
    """Run it as `python SCRIPT ARGS` in the workspace would.

    Leaves the module as `__main__`: functions of it may still run in threads and at exit.
    """
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __builtins__=builtins,
        __file__=str(path),
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", str(path)),
        __annotations__={},
    )
    sys.argv = [config.script, *config.args]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path.insert(0, str(path.parent.resolve()))
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    # As multiprocessing does at import: a spawned child names classes of the script after it.
    sys.modules["__mp_main__"] = main
    exec(code, main.__dict__)


def _after_own_frames(traceback: Any) -> Any:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _exit_failure(end: SystemExit, config: ScriptConfig, workspace: Path) -> FailureEvent | None:
    if end.code is None or end.code == 0:
        return None
    if isinstance(end.code, int):
        reason = f"{config.script} exited with status {end.code}."
    else:
        print(end.code, file=sys.stderr)
        reason = f"{config.script} exited: {end.code}"
    failure = describe_failure(end, workspace=workspace)
    remedy = "the last lines of `llmops logs` are what the script printed before"
    return failure.model_copy(update={"message": reason, "remedy": remedy})


def describe_failure(error: BaseException, *, workspace: Path, rank: int | None = None) -> Any:
    """Return the failure with the user's file and line, also of an error in a worker of Ray."""
    from llmops_kernel.train.failures import describe

    layers = _layers(error)
    failure = describe(layers[-1], rank=rank or 0, workspace=workspace)
    printed = [str(layer) for layer in layers[:-1] if _FRAME.search(str(layer))]
    text = "\n".join([*printed[-1:], failure.traceback])
    file, line = failure.file, failure.line
    if not file:
        file, line = _place_in(text, workspace)
    return failure.model_copy(
        update={
            "ranks": () if rank is None else (rank,),
            "file": file,
            "line": line,
            "traceback": text,
        }
    )


def _layers(error: BaseException) -> list[BaseException]:
    """Return the error and what it wraps: Ray Train's, Ray's, and at last the script's own."""
    layers = [error]
    for _ in range(10):
        workers = getattr(error, "worker_failures", None)
        cause = next(iter(workers.values()), None) if isinstance(workers, dict) else None
        cause = cause or getattr(error, "cause", None)
        if cause is None and type(error).__name__ == "TrainingFailedError":
            cause = error.__cause__
        if not isinstance(cause, BaseException):
            break
        error = cause
        layers.append(error)
    return layers


def _place_in(text: str, workspace: Path) -> tuple[str, int | None]:
    """Return the deepest line of the workspace that a printed traceback names."""
    root = f"{workspace.resolve()}/"
    for path, line in reversed(_FRAME.findall(text)):
        if path.startswith(root):
            return path.removeprefix(root), int(line)
        if match := _IN_WORKSPACE.search(path):
            return match[1], int(line)
    return "", None
