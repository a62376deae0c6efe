"""Makes vLLM's environment with venv and pip, once for a machine's user."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.score_env import ENV_VAR, MADE, parts, path, python, ready

__all__ = ["make", "path", "ready", "remove"]

_NO_NETWORK = (
    "no matching distribution", "could not find a version", "connection", "name resolution",
    "timed out", "ssl",
)  # fmt: skip
_POLL_S = 0.5


def make(progress: Progress | None = None) -> Path:
    """Return vLLM's environment, making it first where there is none: some minutes and 4 GB.

    Safe among processes: one makes it, the others wait. Raises MissingDependencyError.
    """
    report = progress or (lambda line: None)
    if ready():
        return path()
    if ENV_VAR in os.environ:
        raise MissingDependencyError(
            f"{ENV_VAR} is {path()}, and there is no {python()}.",
            remedy=f"make an environment with vLLM there, or unset {ENV_VAR}",
        )
    folder = path()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(folder, report):
            if not ready():
                _make(folder, report)
    except OSError as error:
        raise MissingDependencyError(
            f"vLLM's environment cannot be made in {folder}: {error}",
            remedy="free some disk space (it needs 4 GB), or point LLMOPS_CACHE at a larger disk",
        ) from error
    return folder


def remove() -> list[Path]:
    """Delete the environments that `make` made, of other pins too; return their folders."""
    if ENV_VAR in os.environ:
        raise MissingDependencyError(
            f"{ENV_VAR} names an environment of your own, which is not deleted.",
            remedy=f"unset {ENV_VAR}, or delete the folder yourself",
        )
    folders = [each for each in path().parent.glob("score-env-*") if each.is_dir()]
    for folder in folders:
        with _only_one(folder, lambda line: None):
            # Without it the environment is not used while its files vanish.
            (folder / MADE).unlink(missing_ok=True)
            shutil.rmtree(folder)
    return folders


@contextmanager
def _only_one(folder: Path, report: Progress) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it when its process ends, however that happens."""
    with folder.with_suffix(".lock").open("a") as file:
        has_said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not has_said:
                    report(f"waiting for another process that makes {folder}")
                has_said = True
                time.sleep(_POLL_S)
        yield


def _make(folder: Path, report: Progress) -> None:
    """Make the environment; an interrupted one has no file MADE, and is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--progress-bar=off",
        "--no-input",
    ]
    steps = parts()
    count = len(steps) + 2
    start = time.monotonic()
    report(f"[1/{count}] an environment for vLLM in {folder}")
    _run([sys.executable, "-m", "venv", str(folder)], log)
    # The pip of Debian 12 (23.0) takes minutes to check that many pins.
    _run([*pip, "pip>=25.3"], log)
    for number, part in enumerate(steps, 2):
        first = part.requirements[0].partition(";")[0].strip()
        num_more = len(part.requirements) - 1
        report(
            f"[{number}/{count}] {first}" + (f" and {num_more} more packages" if num_more else "")
        )
        options = [] if part.with_dependencies else ["--no-deps"]
        _run([*pip, *options, *part.requirements], log)
    report(f"[{count}/{count}] importing vLLM once")
    _run([str(folder / "bin" / "python"), "-c", "import vllm"], log)
    (folder / MADE).write_text(
        "\n".join(requirement for part in steps for requirement in part.requirements)
    )
    report(f"vLLM's environment is ready after {time.monotonic() - start:.0f} s")


def _run(command: Sequence[str], log: Path) -> None:
    """Run a command; its output goes to the log. Raises MissingDependencyError."""
    # As one of our own processes, not as a package of this environment.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("a") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        code = subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
        ).returncode
    if code:
        raise _failure(command, log)


def _failure(command: Sequence[str], log: Path) -> MissingDependencyError:
    output = log.read_text(errors="replace").rpartition("\n$ ")[2]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    lower = output.lower()
    if "no space left" in lower:
        remedy = "free some disk space (it needs 4 GB), or point LLMOPS_CACHE at a larger disk"
    elif "ensurepip" in lower:
        remedy = "install Python's venv (apt-get install python3-venv)"
    elif any(text in lower for text in _NO_NETWORK):
        remedy = (
            "check the network and pip's settings (PIP_INDEX_URL), or set engine.type to"
            " transformers, which needs no further environment"
        )
    else:
        remedy = f"read {log}, or set engine.type to transformers"
    program = "pip" if "pip" in command else command[1] if command[1] != "-m" else command[2]
    last = (errors or lines or ["no output"])[-1]
    return MissingDependencyError(
        f"vLLM's environment cannot be made: {program} failed: {last} (log: {log})", remedy=remedy
    )
