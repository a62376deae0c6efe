"""A chat's routes and its feed: the newest conversation, the growing answers, clear refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import AnswerEvent, EndEvent, PhaseEvent
from llmops_kernel.server.chat_feed import ChatFeed
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat import ChatSettings, turn_config
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.score.chat.trained import add_trained_run


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore()


@pytest.fixture
def run_id(store: RunStore, tmp_path: Path) -> str:
    output = tmp_path / "adapter"
    output.mkdir()
    return add_trained_run(store, output)


def add_turn(
    store: RunStore, run_id: str, prompt: str, *, number: int, after: str = ""
) -> tuple[str, JournalWriter]:
    config = turn_config(store, run_id, prompt, settings=ChatSettings(), after=after)
    record = RunRecord(
        run_id=f"chat-{number}",
        kind="chat",
        name="chat",
        created_s=10.0 + number,
        cluster="test",
        config=config.model_dump(mode="json"),
        hidden=True,
    )
    store.create(record, config_yaml="")
    folder = store.folder(record.run_id).journal
    journal = JournalWriter([folder], stream="1-driver", attempt=1)
    journal.emit(PhaseEvent(name="driver", state="begin"))
    return record.run_id, journal


def answer(journal: JournalWriter, model: str, text: str) -> None:
    journal.emit(AnswerEvent(model=model, text=text, output_tokens=1, is_final=True, finish="stop"))


def test_the_feed_grows_with_the_answers_and_ends(store: RunStore, run_id: str) -> None:
    turn, journal = add_turn(store, run_id, "hi", number=1)
    feed = ChatFeed(turn, backend=Backend(store=store))
    feed.poll()
    first, cursor = feed.news(None, {})
    assert first[0].kind == "chat"
    assert [side["text"] for side in first[0].data["sides"]] == ["", ""]
    assert feed.news(cursor, {}) == ([], cursor)
    journal.emit(AnswerEvent(model="tuned", text="Hel", output_tokens=1))
    journal.emit(AnswerEvent(model="tuned", start=3, text="lo", output_tokens=2, is_final=True))
    journal.emit(EndEvent(state="SUCCEEDED"))
    feed.poll()
    (last,), cursor = feed.news(cursor, {})
    assert [side["text"] for side in last.data["sides"]] == ["", "Hello"]
    assert last.data["sides"][0]["messages"] == [{"role": "user", "content": "hi"}]
    assert last.data["state"] == "SUCCEEDED"
    feed.close()


async def test_the_newest_conversation_with_each_models_own_answers(
    store: RunStore, run_id: str, api: Any
) -> None:
    empty = json.loads((await api(f"runs/{run_id}/chat")).body)
    assert empty == {"turn": None}
    first, journal = add_turn(store, run_id, "hi", number=1)
    answer(journal, "base", "base says")
    answer(journal, "tuned", "tuned says")
    journal.emit(EndEvent(state="SUCCEEDED"))
    add_turn(store, run_id, "more", number=2, after=first)
    turn = json.loads((await api(f"runs/{run_id}/chat")).body)["turn"]
    assert (turn["id"], turn["run_id"]) == ("chat-2", run_id)
    told = {side["name"]: [m["content"] for m in side["messages"]] for side in turn["sides"]}
    assert told == {
        "base": ["hi", "base says", "more"],
        "tuned": ["hi", "tuned says", "more"],
    }


async def test_a_prompt_without_its_cluster_is_refused_with_a_remedy(
    store: RunStore, run_id: str, api: Any
) -> None:
    body = json.dumps({"prompt": "hi"})
    started = await api(f"runs/{run_id}/chat", method="POST", body=body)
    assert started.code == 202
    operation = json.loads(started.body)
    for _ in range(200):
        operation = json.loads((await api(f"operations/{operation['id']}")).body)
        if operation["state"] != "running":
            break
        await asyncio.sleep(0.05)
    assert operation["state"] == "failed"
    assert operation["trouble"]["remedy"]
    empty = await api(f"runs/{run_id}/chat", method="POST", body='{"prompt": ""}')
    assert empty.code == 422
