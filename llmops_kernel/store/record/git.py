"""Read the state of the workspace from git, where git and a repository exist."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from llmops_kernel.store.record.record import GitState

MAX_DIFF_BYTES = 1024**2
_TIMEOUT_S = 10.0
_MAX_UNTRACKED = 200

# Nothing that the repository's own configuration names may run, ask or take a lock.
_BASE = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def read_git(root: Path) -> tuple[GitState | None, str]:
    """State and uncommitted difference of the folder `root`.

    `(None, "")` without git, outside a repository, before the first commit or when git
    takes longer than 10 s. Untracked files are named in the header; their content is
    in the package. A difference above 1 MiB is cut, with a line that says so.
    """
    revision = _git(root, "rev-parse", "--verify", "HEAD")
    if revision is None:
        return None, ""
    branch = _git(root, "symbolic-ref", "--short", "--quiet", "HEAD")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    difference = _git(
        *(root, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--relative"),
        *("HEAD", "--", "."),
    )
    names = sorted(name for name in (untracked or "").split("\0") if name)
    state = GitState(
        revision=revision.strip(),
        branch=(branch or "").strip() or None,
        dirty=bool(names or difference),
    )
    return state, _header(names) + (difference or "")


def _header(untracked: list[str]) -> str:
    lines = [f"# untracked: {name!r}" for name in untracked[:_MAX_UNTRACKED]]
    if len(untracked) > _MAX_UNTRACKED:
        lines.append(f"# and {len(untracked) - _MAX_UNTRACKED} more untracked files")
    return "".join(f"{line}\n" for line in lines)


def _git(root: Path, *arguments: str) -> str | None:
    """Return what a git command prints, at most 1 MiB of it; None when it fails."""
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [*_BASE, *arguments],
                cwd=root,
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        size = output.tell()
        output.seek(0)
        text = output.read(MAX_DIFF_BYTES).decode(errors="replace")
    return text if size <= MAX_DIFF_BYTES else f"{text}\n# cut at 1 MiB of {size:,} bytes\n"
