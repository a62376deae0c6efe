"""Texts of models, data and errors act on no terminal, whichever command prints them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from llmops_kernel import api
from llmops_kernel.api.environment import ProgressLine
from llmops_kernel.errors import ConfigError, inert
from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    FailureEvent,
    OutputEvent,
    StartEvent,
    WarningEvent,
)
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run, step, worker

CLIPBOARD, LINK = "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;http://example.invalid\x07here\x1b]8;;\x07"
HOSTILE = f"{CLIPBOARD}{LINK}\x1b[2J\x1b[H\x9b2J\u202eesrever\ud800"
ACTS = re.compile(r"\x1b\]|\x1b\[2J|\x1b\[H|\x9b|\u202e|\x07")


def hostile_run(store: RunStore, run_id: str) -> None:
    config = {"optimizer": {"learning_rate": 1e-4}, "model": {"id": f"m{CLIPBOARD}"}}
    make_run(store, run_id, ended=None, config=config)
    journal = worker(store, run_id)
    facts = {"num_workers": 1, "global_batch_size": 1, "device": "cpu", "dtype": "float32"}
    journal.emit(StartEvent(total_steps=2, performance=HOSTILE, **facts))
    journal.emit(step(1))
    hostile = HOSTILE[:-1]  # A journal is UTF-8, which has no lone surrogates.
    sample = {"row": "1", "prompt": hostile, "prediction": hostile, "reference": hostile}
    journal.emit(EvalEvent(step=1, metrics={"eval_loss": 1.0}, samples=(sample,)))
    journal.emit(WarningEvent(message=hostile, remedy=hostile))
    journal.emit(OutputEvent(path=f"/tmp/{CLIPBOARD}", what="adapter"))
    journal.emit(FailureEvent(error="E", message=hostile, remedy=hostile, traceback=hostile))
    journal.emit(EndEvent(state="FAILED", message=hostile, last_step=1))
    journal.close()


def in_terminal(*arguments: str) -> str:
    """Return what a command writes to a terminal of its own."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "llmops_kernel.cli.main", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # The process has closed its end.
            break
        if not piece:
            break
        written += piece
    os.close(master)
    process.wait(timeout=60)
    return written.decode()


@pytest.fixture
def runs(home: Path) -> tuple[str, str]:
    store = RunStore()
    for run_id in ("menu-1", "menu-2", "menu-3"):
        hostile_run(store, run_id)
        store.annotate(run_id, title=f"title {CLIPBOARD}", note=HOSTILE[:-1])
    return "menu-1", "menu-2"


@pytest.mark.parametrize(
    "command",
    [
        ("show", "menu-1"),
        ("samples", "menu-1"),
        ("samples", "menu-1", "--row", "1"),
        ("wait", "menu-1"),
        ("compare", "menu-1", "menu-2"),
        ("compare", "menu-1", "menu-2", "menu-3"),
        ("diff", "menu-1", "menu-2"),
        ("runs",),
        ("note", "menu-1"),
        ("logs", "menu-1"),
        ("export", "menu-1"),
        ("resubmit", "menu-1", f"data.train={CLIPBOARD}"),
        ("delete", "menu-1", "--yes"),
    ],
    ids=lambda command: f"{command[0]} {len(command) - 1}",
)
def test_no_command_lets_a_text_act_on_the_terminal(
    runs: tuple[str, str], command: tuple[str, ...]
) -> None:
    written = in_terminal(*command)
    assert written.strip()
    assert ACTS.findall(written) == []


def test_the_text_is_still_read(runs: tuple[str, str]) -> None:
    assert "␛]52;c;ZXZpbA==" in in_terminal("samples", "menu-1")


def test_colours_of_a_log_stay_and_nothing_else(home: Path) -> None:
    store = RunStore()
    make_run(store, "menu-1", steps=1)
    log = store.folder("menu-1").root / "driver.log"
    log.write_text(f"\x1b[32mgreen\x1b[0m {HOSTILE[:-1]}\n")
    code = (
        "import sys; from llmops_kernel.cli.console import echo_log;"
        " echo_log(open(sys.argv[1]).read())"
    )
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-c", code, str(log)], stdout=slave, check=True, timeout=60)
    os.close(slave)
    written = os.read(master, 65536).decode()
    os.close(master)
    assert "\x1b[32mgreen\x1b[0m ␛]52" in written
    assert ACTS.findall(written) == []
    piped = subprocess.run(
        [sys.executable, "-c", code, str(log)], capture_output=True, check=True, timeout=60
    )
    assert CLIPBOARD in piped.stdout.decode()  # A file or pipe gets what was written.


def test_python_prints_nothing_that_acts(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = map(api.attach, runs)
    ProgressLine().show(HOSTILE[:-1])
    shown = [capsys.readouterr().out, repr(api.runs()), repr(api.compare(first, second))]
    shown.append(repr(api.compare(first, second, "menu-3")))
    shown += [repr(first.diff(second)), str(ConfigError(HOSTILE, remedy=HOSTILE))]
    for text in shown:
        assert ACTS.findall(text) == []


def test_each_character_is_replaced_by_one() -> None:
    assert inert("a\x1b[1mb\tc\nd\x7f\x9d") == "a␛[1mb\tc\nd␡\N{REPLACEMENT CHARACTER}"
    assert len(inert(HOSTILE)) == len(HOSTILE)
    emoji = "👩‍💻 नमस्ते é"
    assert inert(emoji) == emoji
