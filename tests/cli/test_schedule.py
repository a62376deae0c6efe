"""`llmops schedule`: add, show, flip, pause, remove, and the process that fires."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from llmops_kernel.cli.schedule import group
from tests.cli.conftest import Llmops
from tests.services.schedules.repository import commit, git, init
from tests.tiny_training import write_training

Shown = Callable[..., tuple[int, str]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = init(tmp_path / "user")
    write_training(folder, "tiny")
    commit(folder)
    return folder


@pytest.fixture
def shown(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> Shown:
    def shown(*words: str) -> tuple[int, str]:
        code = llmops("schedule", *words)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return shown


def test_every_subcommand_has_an_example() -> None:
    commands: dict[str, Any] = typer.main.get_command(group).commands  # type: ignore[attr-defined]
    names = {"add", "list", "show", "follow", "pin", "pause", "resume", "rm", "run", "run-now"}
    assert set(commands) == {*names, "render"}
    for name, command in commands.items():
        assert command.epilog.startswith(f"Example: llmops schedule {name}")


def test_a_schedule_is_added_flipped_paused_and_removed(shown: Shown, repository: Path) -> None:
    def record() -> dict[str, Any]:
        code, text = shown("list", "--json")
        assert code == 0
        return {each["name"]: each for each in json.loads(text)}["nightly"]

    config, revision = str(repository / "tiny.train.yaml"), git(repository, "rev-parse", "HEAD")
    code, text = shown("add", "nightly", config, "training.max_steps=2", "--cron", "0 2 * * *")
    assert code == 0
    assert "branch main" in text
    assert record()["changes"] == ["training.max_steps=2"]
    assert shown("pin", "nightly", "HEAD")[0] == 0
    assert (record()["revision"], record()["branch"]) == (revision, None)
    assert shown("follow", "nightly", "no-such")[0] == 1
    assert shown("follow", "nightly", "main")[0] == 0
    assert (record()["revision"], record()["branch"]) == (None, "main")
    assert shown("pause", "nightly")[0] == 0
    assert "paused" in shown("show", "nightly")[1]
    assert shown("run", "--once")[0] == 0
    assert shown("resume", "nightly")[0] == 0
    assert record()["firings"] == []
    assert shown("rm", "nightly")[0] == 0
    code, text = shown("show", "nightly")
    assert code == 1
    assert "nightly" in text


@pytest.mark.parametrize(
    "words",
    [
        ("training.max_step=2", "--cron", "0 2 * * *"),  # No such field.
        ("--cron", "0 25 * * *"),
        ("--revision", "v9"),
    ],
)
def test_mistakes_are_told_when_it_is_added(
    words: tuple[str, ...], shown: Shown, repository: Path
) -> None:
    assert shown("add", "nightly", str(repository / "tiny.train.yaml"), *words)[0] == 1
    assert "No schedules" in shown("list")[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_process_ends_when_it_is_told_to(number: int, code: int, home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "llmops_kernel", "schedule", "run"],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stderr is not None
    assert "schedules" in process.stderr.readline()
    process.send_signal(number)
    assert process.wait(30) == code
    process.stderr.close()
