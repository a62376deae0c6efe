"""Paths of files on disk: one home folder, one folder per run, one cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_ENV_VAR = "LLMOPS_HOME"
CACHE_ENV_VAR = "LLMOPS_CACHE"
RUN_STORAGE_ENV_VAR = "LLMOPS_RUN_STORAGE"
"""Set on the nodes of a cluster that keeps runs in another folder or bucket."""


def home() -> Path:
    """Return the folder of runs and cluster records; `LLMOPS_HOME` moves it."""
    configured = os.environ.get(HOME_ENV_VAR)
    return Path(configured).absolute() if configured else default_home()


def default_home() -> Path:
    """Return the home folder where `LLMOPS_HOME` names no other."""
    return Path(platformdirs.user_data_dir("llmops")).absolute()


def packages(home: Path) -> Path:
    """Return the folder of the built packages of a home, for its next runs and for `diff`."""
    return home / "packages"


def cache() -> Path:
    """Return the folder of caches; may be deleted at any time. `LLMOPS_CACHE` moves it."""
    return Path(os.environ.get(CACHE_ENV_VAR) or platformdirs.user_cache_dir("llmops")).absolute()


@dataclass(frozen=True)
class RunFolder:
    """The files of one run below `<home>/runs/<run id>/`."""

    root: Path

    @property
    def record(self) -> Path:
        """Return the immutable record; its presence also proves that a folder is this run's."""
        return self.root / "record.json"

    @property
    def attempts(self) -> Path:
        """Return `attempts.jsonl`: one line per attempt, appended."""
        return self.root / "attempts.jsonl"

    @property
    def config(self) -> Path:
        """Return the resolved training config as YAML."""
        return self.root / "config.yaml"

    @property
    def notes(self) -> Path:
        """Return the file of what users add: title, star, note. The only file that is rewritten."""
        return self.root / "notes.json"

    @property
    def acts(self) -> Path:
        """Return `agent.jsonl`: a line for each thing that an agent did to the run, appended."""
        return self.root / "agent.jsonl"

    @property
    def git_diff(self) -> Path:
        return self.root / "git.diff"

    @property
    def journal(self) -> Path:
        """Return the folder of the journal: one `<stream>.jsonl` per writer."""
        return self.root / "journal"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def trackers(self) -> Path:
        """Return the folder of what was sent to trackers, with their log."""
        return self.root / "trackers"

    @property
    def logs(self) -> Path:
        """Return `driver-<attempt>.log` once an attempt has ended."""
        return self.root / "logs"


def runs_root() -> Path:
    return home() / "runs"


def run_folder(run_id: str) -> RunFolder:
    return RunFolder(runs_root() / run_id)
