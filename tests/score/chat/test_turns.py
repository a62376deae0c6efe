"""Turns of a chat on a real cluster: both models, a second turn, a stop, errors, two at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat import ChatSettings, ask, config_of, newest_turn
from llmops_kernel.services.runs import Run
from llmops_kernel.store.journal.score_view import ChatView
from llmops_kernel.views.summary import list_runs

pytestmark = pytest.mark.ray

WAIT_S = 180
TINY = ChatSettings(max_tokens=12, engine="transformers")
INSTANT = ChatSettings(engine="tests.score.instant:InstantEngine")
Add = Callable[..., str]


def view_of(turn: Run) -> ChatView:
    view = turn.view
    assert isinstance(view, ChatView)
    return view


def until(turn: Run, condition: Callable[[ChatView], bool]) -> ChatView:
    deadline_s = time.monotonic() + WAIT_S
    while not condition(view_of(turn)):
        assert time.monotonic() < deadline_s, view_of(turn).summary()
        time.sleep(0.1)
    return view_of(turn)


def ended(turn: Run) -> ChatView:
    return until(turn, lambda view: view.is_terminal)


def test_both_models_answer_and_the_next_turn_has_the_conversation(
    backend: Backend, trained: Add
) -> None:
    run = trained()
    first = ask(backend, run, "What is two plus one?", settings=replace(TINY, system="Be brief."))
    view = ended(first)
    assert view.state == "SUCCEEDED", view.message
    assert set(view.answers) == {"base", "tuned"}
    for answer in view.answers.values():
        assert answer.is_final
        assert answer.output_tokens > 0
        assert answer.error == ""
    assert [span.name for span in view.phases()].count("engine") == 1

    second = ask(backend, run, "And plus four?", settings=TINY, after=first.id)
    view = ended(second)
    assert view.state == "SUCCEEDED", view.message
    # The engine was loaded: nobody waits for it again.
    assert "engine" not in [span.name for span in view.phases()]
    config = config_of(second.record)
    assert (config.run, config.after) == (run, first.id)
    told = {one.name: one.messages for one in config.models}
    assert told["tuned"][0].role == "system"
    assert told["tuned"][-1].content == "And plus four?"
    assert newest_turn(backend.store, run) == second.record
    assert first.id not in [row.run_id for row in list_runs(backend.store)]


def test_each_model_continues_its_own_answers(backend: Backend, trained: Add) -> None:
    run = trained()
    first = ask(backend, run, "one two three", settings=INSTANT)
    assert ended(first).answers["base"].text == "one two three"
    second = ask(backend, run, "four", settings=INSTANT, after=first.id)
    ended(second)
    for one in config_of(second.record).models:
        assert [message.content for message in one.messages] == [
            *("one two three", "one two three"),
            "four",
        ]


def test_a_stop_ends_the_answers_and_the_engine_is_free_again(
    backend: Backend, trained: Add
) -> None:
    run = trained()
    turn = ask(backend, run, "[hang]", settings=INSTANT)
    until(turn, lambda view: any(span.name == "answer" for span in view.phases()))
    turn.stop()
    view = ended(turn)
    assert view.state == "STOPPED"
    assert {answer.finish for answer in view.answers.values()} == {"cancelled"}
    again = ask(backend, run, "hello", settings=INSTANT, after=turn.id)
    assert ended(again).answers["tuned"].text == "hello"
    assert len(config_of(again.record).models[0].messages) == 1


def test_two_chats_at_once_have_their_own_answers(backend: Backend, trained: Add) -> None:
    run = trained()
    turns = [ask(backend, run, text, settings=INSTANT) for text in ("alpha", "beta")]
    texts = [{answer.text for answer in ended(turn).answers.values()} for turn in turns]
    assert texts == [{"alpha"}, {"beta"}]


def test_a_full_fine_tune_that_cannot_be_loaded_leaves_the_base_its_answer(
    backend: Backend, trained: Add, ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    run = trained(output=tmp_path, what="model")
    turn = ask(backend, run, "Hello", settings=TINY)
    view = ended(turn)
    assert view.state == "SUCCEEDED"
    assert view.answers["base"].error == ""
    assert view.answers["base"].output_tokens > 0
    assert view.answers["tuned"].finish == "error"
    assert str(tmp_path) in view.answers["tuned"].error
    assert view.message.startswith("One model gave no answer")
