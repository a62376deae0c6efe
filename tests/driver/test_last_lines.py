from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.driver.last_lines import LastLines, mark_first_lines, mark_last_lines

WAIT_S = 0.3
"""Shorter than the 3 s that `LastLines` waits for workers that returned."""


class Driver:
    """What Ray's own dispatcher of workers' lines does in a driver, and what gets printed."""

    def __init__(self) -> None:
        from ray._private.ray_logging import global_worker_stdstream_dispatcher as dispatcher

        self._dispatcher = dispatcher
        self.printed: list[str] = []
        self.last_lines = LastLines()
        dispatcher.add_handler("test", self._print)

    def _print(self, batch: dict[str, Any]) -> None:
        self.printed += batch["lines"]

    def receive(self, text: str, *, is_err: bool) -> None:
        self._dispatcher.emit({"lines": text.splitlines(), "is_err": is_err, "pid": 1})

    def close(self) -> None:
        self._dispatcher.remove_handler("test")

    def wait(self, workers: int) -> threading.Thread:
        thread = threading.Thread(
            target=self.last_lines.wait, args=(range(workers),), kwargs={"returned": True}
        )
        thread.start()
        thread.join(WAIT_S)
        return thread


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


@pytest.fixture
def marks(capfd) -> dict[str, str]:
    """What worker 0 writes into each of its streams."""
    marks = {}
    for name, mark in (("first", mark_first_lines), ("last", mark_last_lines)):
        mark(0)
        out, err = capfd.readouterr()
        assert out == err
        marks[name] = out
    return marks


def test_waits_for_the_last_line_of_both_streams_and_prints_no_mark(driver, marks):
    driver.receive("loss 1.5\n" + marks["last"], is_err=False)
    waiting = driver.wait(1)
    assert waiting.is_alive()
    driver.receive("a warning" + marks["last"], is_err=True)
    waiting.join(2)
    assert not waiting.is_alive()
    assert driver.printed == ["loss 1.5", "a warning"]


def test_marks_of_a_worker_group_that_was_replaced_do_not_count(driver, marks):
    for text in (marks["last"], marks["first"], marks["last"]):
        driver.receive(text, is_err=False)
    driver.receive(marks["last"], is_err=True)
    driver.receive(marks["first"] + "the new group's line\n", is_err=True)
    waiting = driver.wait(1)
    assert waiting.is_alive()
    driver.receive(marks["last"], is_err=True)
    waiting.join(2)
    assert not waiting.is_alive()
    assert driver.printed == ["the new group's line"]
