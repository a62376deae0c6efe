"""What launcher, keeper and server leave for each other in the folder."""

from __future__ import annotations

import os
from pathlib import Path

from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.preload import fingerprint


def folder(tmp_path: Path) -> WarmFolder:
    made = WarmFolder(tmp_path / "warm")
    made.create()
    return made


def test_state_and_report_come_back(tmp_path: Path) -> None:
    warm = folder(tmp_path)
    assert warm.read_state() is None
    assert warm.read_report() == {}
    warm.write_state("failed", keeper_pid=7, reason="so")
    warm.write_report({"pid": 3})
    state = warm.read_state() or {}
    assert (state["state"], state["keeper_pid"], state["reason"]) == ("failed", 7, "so")
    assert warm.read_report() == {"pid": 3}


def test_half_written_files_are_none(tmp_path: Path) -> None:
    warm = folder(tmp_path)
    for content in (b"", b"\xff\xff", b"{", b"[1]"):
        warm.state.write_bytes(content)
        warm.report.write_bytes(content)
        assert warm.read_state() is None
        assert warm.read_report() == {}


def test_events_are_read_around_a_broken_line(tmp_path: Path) -> None:
    warm = folder(tmp_path)
    assert warm.read_events() == []
    warm.note("one", reason="ä")
    with warm.events.open("a") as file:
        file.write('{"event": "cut\n[]\n')
    warm.note("two")
    assert [event["event"] for event in warm.read_events()] == ["one", "two"]


def test_nobody_else_may_read_or_write(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        warm = folder(tmp_path)
        warm.write_state("ready", keeper_pid=1)
        warm.write_report({})
        warm.write_command(["x"], {"SECRET": "y"})
        warm.note("one")
    finally:
        os.umask(mask)
    assert warm.root.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in warm.root.iterdir()} == {0}


def test_a_path_that_is_too_long_for_a_socket() -> None:
    base = "/tmp/" + "x" * (107 - len("/tmp//server.sock"))
    assert WarmFolder(Path(base)).problem() == ""
    assert "108 bytes, and 107 are allowed" in WarmFolder(Path(base + "x")).problem()
    assert "choose a shorter temp_dir" in WarmFolder(Path(base + "ä")).problem()


def test_an_installation_changes_the_fingerprint(tmp_path: Path) -> None:
    before = fingerprint([str(tmp_path), "/not/there"])
    assert fingerprint(list(before)) == before
    (tmp_path / "new-1.0.dist-info").mkdir()
    assert fingerprint(list(before)) != before
