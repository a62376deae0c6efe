"""A chat from the command line and from Python, on a real cluster."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest

import llmops_kernel as llmops
from llmops_kernel.services.backend import Backend
from tests.cli.conftest import call
from tests.score.chat.trained import add_trained_run

pytestmark = pytest.mark.ray

ENGINE = "tests.score.instant:InstantEngine"
Add = Callable[..., str]


def typed(lines: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_one_prompt_prints_both_answers(trained: Add, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained()
    assert call("chat", run, "--prompt", "hello there [b]", "--engine", ENGINE) == 0
    shown = capsys.readouterr().out
    assert shown.count("hello there [b]") == 2
    assert shown.index("base") < shown.index("fine-tuned")
    assert "3 tokens" in shown
    words = ("--prompt", "alone", "--only", "tuned", "--engine", ENGINE)
    assert call("chat", run, *words) == 0
    shown = capsys.readouterr().out
    assert shown.count("alone") == 1
    assert "base" not in shown


def test_a_conversation_is_read_line_by_line(
    trained: Add,
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = trained()
    typed(["first", "second", "/reset", "third", "/exit", "never"], monkeypatch)
    assert call("chat", run, "--engine", ENGINE, "--system", "Be brief.") == 0
    shown = capsys.readouterr().out
    assert "never" not in shown
    assert "The conversation is empty." in shown
    ids = [one for one in backend.store.run_ids(hidden=True) if one.startswith("chat-")][:3]
    third, second, first = (backend.store.record(one).config for one in ids)
    roles = [message["role"] for message in second["models"][0]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert second["after"] == ids[2]
    assert (first["after"], third["after"]) == ("", "")


def test_a_prompt_that_fails_is_exit_code_one(
    trained: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("chat", trained(), "--prompt", "[fail]", "--engine", ENGINE) == 1
    assert "this row fails" in capsys.readouterr().out


def test_a_run_without_a_model_has_a_remedy(
    trained: Add, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(output=None)
    assert call("chat", run, "--prompt", "hello") == 1
    error = capsys.readouterr().err
    assert f"Run {run} has written no model." in error
    assert "Try:" in error


def test_without_its_cluster_the_remedy_is_to_start_one(
    backend: Backend, adapter: object, capsys: pytest.CaptureFixture[str]
) -> None:
    run = add_trained_run(
        backend.store, str(adapter), run_id="lora-260102-000000-dead", cluster="nowhere"
    )
    assert call("chat", run, "--prompt", "hello") == 1
    error = capsys.readouterr().err
    assert "nowhere" in error
    assert "llmops up" in error


def test_from_python(trained: Add) -> None:
    run = llmops.attach(trained())
    reply = run.chat("<script>alert(1)</script>", engine=ENGINE)
    assert reply.base == reply.tuned == "<script>alert(1)</script>"
    assert "<script>" not in reply._repr_html_()
    assert "&lt;script&gt;" in reply._repr_html_()
    assert repr(reply).startswith("base: <script>")
    further = reply.chat("two words")
    assert further.tuned == "two words"
    assert further.answers["tuned"].output_tokens == 2
    with pytest.raises(llmops.RunFailedError, match="this row fails"):
        run.chat("[fail]", engine=ENGINE)
