"""The code of a run: the workspace's state in git, and the package that is kept of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.store.record import GitState
from llmops_kernel.store.store import RunStore

MAX_DIFF_BYTES = 1024**2
_TIMEOUT_S = 10.0
_MAX_UNTRACKED = 200

# Nothing that the repository's own configuration names may run, ask or take a lock.
_BASE = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    # A partial clone would fetch what it lacks by a program that its configuration names.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
_FILTERS = r"^filter\..*\.(clean|process|required)$"
_OF_THE_REPOSITORY = ("local", "worktree")


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
        # To look into a submodule, git would run another git there, with its configuration.
        *("--ignore-submodules=dirty", "HEAD", "--", "."),
        env=_without_own_filters(root),
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


def _without_own_filters(root: Path) -> dict[str, str]:
    """Return variables that turn off the filters which the repository's configuration names.

    `git diff` would run them. Those of the user's own configuration, as of Git LFS, stay.
    """
    listed = _git(root, "config", "--show-scope", "-z", "--get-regexp", _FILTERS) or ""
    words = listed.split("\0")
    chosen: dict[str, str] = {}
    own = set()
    for scope, setting in zip(words[::2], words[1::2], strict=False):
        key, _, value = setting.partition("\n")
        if scope in _OF_THE_REPOSITORY:
            own.add(key)
        else:
            chosen[key] = value
    # An empty command passes the content on as it is.
    passes = {key: "false" if key.endswith(".required") else "" for key in own}
    instead = [(key, chosen.get(key, passes[key])) for key in sorted(own)]
    variables = {"GIT_CONFIG_COUNT": str(len(instead))}
    for number, (key, value) in enumerate(instead):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _git(root: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str | None:
    """Return what a git command prints, at most 1 MiB of it; None when it fails."""
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [*_BASE, *arguments],
                cwd=root,
                env={**os.environ, **_ENVIRONMENT, **(env or {})},
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


# --- The code that a run was submitted with, from its kept package ---


MAX_SHOWN_BYTES = 1024**2


def code_of(store: RunStore, run_id: str, path: str) -> str:
    """Return a file of the run's workspace as text. Raises StoreError when it cannot be shown."""
    record = store.record(run_id)
    if path not in record.files:
        raise RunNotFoundError(
            f"Run {record.run_id} was submitted without the file {path!r}",
            remedy="the run's record lists the files that were submitted",
        )
    package = store.packages / f"{record.code_hash}.zip"
    try:
        with zipfile.ZipFile(package) as archive:
            if archive.getinfo(path).file_size > MAX_SHOWN_BYTES:
                raise StoreError(f"{path} is too large to display", remedy=f"unzip {package}")
            data = archive.read(path)
    except KeyError:
        raise StoreError(
            f"{path} was submitted as data, of which only the content hash is kept",
            remedy=f"compare its hash: {record.files[path]}",
        ) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"The code of run {record.run_id} is no longer kept",
            remedy=f"git may have it: revision {record.git.revision}" if record.git else "",
        ) from error
    if b"\0" in data:
        raise StoreError(f"{path} is not a text file", remedy=f"unzip {package}")
    return data.decode(errors="replace")


def git_diff_of(store: RunStore, run_id: str) -> str:
    """Return the diff of the workspace from its git revision, at most 1 MiB; empty for none."""
    path = store.folder(run_id).git_diff
    try:
        with path.open("rb") as file:
            return file.read(MAX_SHOWN_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
