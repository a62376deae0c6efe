"""The run record: everything needed to know what ran; written once, before the run starts."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


class GitState(BaseModel):
    model_config = ConfigDict(frozen=True)

    revision: str
    branch: str | None = None
    dirty: bool = False
    """True when the working tree differed; the difference is in `git.diff`."""


class RunRecord(BaseModel):
    """Never changes after it is written; attempts are appended in a separate file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    kind: str = "train"
    """Name of a registered kind of run; records of earlier versions have none."""
    name: str
    created_s: float
    cluster: str
    """Name of the cluster it was submitted to."""
    provider: str = "local"
    config: dict[str, Any]
    config_path: str | None = None
    """The file it came from, relative to the workspace where possible."""
    overrides: dict[str, Any] = {}
    workspace_root: str = ""
    code_hash: str = ""
    """Content hash of the workspace's code package."""
    assets_hash: str = ""
    """Content hash of its data package; empty without one."""
    package_hash: str = ""
    """Content hash of `llmops_kernel` itself."""
    files: dict[str, str] = {}
    """Relative path -> content hash (sha256, 16 hex digits) of each workspace file."""
    left_out: tuple[str, ...] = ()
    """Files and folders that were not uploaded because they usually hold secrets."""
    ignored: tuple[str, ...] = ()
    """Those that the workspace's ignore files kept at home, the ones that the script names first;
    not more than 50."""
    git: GitState | None = None
    versions: dict[str, str] = {}
    host: str = ""
    user: str = ""
    hardware: dict[str, Any] = {}
    parent: str | None = None
    """The run this one was re-submitted from."""
    hidden: bool = False
    """True for runs that lists leave out unless asked for, such as those of `llmops bench`."""


class Attempt(BaseModel):
    """One try of a run; a line of `attempts.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    submission_id: str
    cluster: str
    dashboard_url: str
    location: str = Field("", validation_alias=AliasChoices("location", "place"))
    """`context/namespace/name` of a cluster on Kubernetes, valid whatever the current context
    is; empty for others."""
    submitted_s: float
    run_storage: str | None = None
    """Folder or bucket of the cluster for what runs write, as it was when this was submitted;
    empty: none. None in records of earlier versions."""
    resumed_from: str | None = None

    @property
    def full_name(self) -> str:
        """The name by which its provider looks up the cluster."""
        return self.location or self.cluster


def new_run_id(name: str, now_s: float | None = None) -> str:
    """`<name>-<yymmdd>-<hhmmss>-<4 hex>`, UTC: sorts by time within a name, never reused."""
    moment = time.gmtime(time.time() if now_s is None else now_s)
    return f"{name}-{time.strftime('%y%m%d-%H%M%S', moment)}-{secrets.token_hex(2)}"


# --- Read the state of the workspace from git, where git and a repository exist ---


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
