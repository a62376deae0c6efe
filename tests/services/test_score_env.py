"""Making vLLM's environment: what happens when it fails. (CI makes a whole one.)"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.services import score_env


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and a pip that finds no package."""
    monkeypatch.delenv("LLMOPS_SCORE_ENV", raising=False)
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path


def test_without_a_network_the_error_names_log_and_remedy(offline: Path) -> None:
    (score_env.path() / "bin").mkdir(parents=True)
    (score_env.path() / "half-made").touch()
    lines: list[str] = []
    with pytest.raises(MissingDependencyError, match="No matching distribution") as caught:
        score_env.make(lines.append)
    assert "PIP_INDEX_URL" in caught.value.remedy
    log = score_env.path().with_suffix(".log")
    assert str(log) in caught.value.message
    assert "pip install" in log.read_text()
    assert not score_env.ready()
    assert not (score_env.path() / "half-made").exists()
    assert lines[0].startswith("[1/")
    assert score_env.remove() == [score_env.path()]
    assert not score_env.path().exists()


def test_a_second_one_waits_for_the_first(offline: Path) -> None:
    lines: list[str] = []
    is_waiting = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        is_waiting.set()

    def make() -> None:
        with pytest.raises(MissingDependencyError):
            score_env.make(say)

    with score_env.path().with_suffix(".lock").open("a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = threading.Thread(target=make)
        second.start()
        assert is_waiting.wait(60)
    second.join(120)
    assert "another process" in lines[0]
    assert lines[1].startswith("[1/")


def test_an_environment_of_the_users_own_is_neither_made_nor_deleted(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMOPS_SCORE_ENV", str(offline / "mine"))
    with pytest.raises(MissingDependencyError, match="LLMOPS_SCORE_ENV"):
        score_env.make()
    with pytest.raises(MissingDependencyError, match="not deleted"):
        score_env.remove()


def test_a_disk_that_cannot_be_written(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (offline / "file").touch()
    monkeypatch.setenv("LLMOPS_CACHE", str(offline / "file" / "cache"))
    with pytest.raises(MissingDependencyError, match="cannot be made in") as caught:
        score_env.make()
    assert "LLMOPS_CACHE" in caught.value.remedy
