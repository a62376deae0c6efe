"""A deleted run takes the chats with it along: no list shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import Run
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend(store=RunStore(tmp_path / "home"))


def add_turn(backend: Backend, number: int, *, run: str) -> str:
    turn = f"chat-260101-12000{number}-abcd"
    make_run(backend.store, turn, kind="chat", config={"run": run}, hidden=True)
    return turn


def test_a_run_is_deleted_with_the_turns_of_its_chats(backend: Backend) -> None:
    for run in ("lora-1", "lora-2"):
        make_run(backend.store, run)
    for number, run in enumerate(("lora-1", "lora-1", "lora-2")):
        add_turn(backend, number, run=run)
    Run(backend, "lora-1").delete()
    left = backend.store.run_ids(hidden=True)
    assert sorted(left) == ["chat-260101-120002-abcd", "lora-2"]


def test_a_turn_with_a_broken_record_does_not_keep_the_run(backend: Backend) -> None:
    make_run(backend.store, "lora-1")
    broken = add_turn(backend, 1, run="lora-1")
    backend.store.folder(broken).record.write_text("{}")
    Run(backend, "lora-1").delete()
    assert "lora-1" not in backend.store.run_ids(hidden=True)


def test_another_kind_of_the_same_name_stays(backend: Backend) -> None:
    make_run(backend.store, "lora-1")
    make_run(backend.store, "chat-data-1", config={"run": "lora-1"})
    Run(backend, "lora-1").delete()
    assert backend.store.run_ids() == ["chat-data-1"]
