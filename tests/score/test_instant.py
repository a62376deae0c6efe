"""The engine of the plumbing tests keeps the protocol."""

from __future__ import annotations

import pytest

from llmops_kernel.score.engines.protocol import Answer, EngineSpec, Job, Request, load_engine

SPEC = EngineSpec(type="tests.score.instant:InstantEngine", model="none", batch_size=2)


def _run(prompts: list[str], job: Job) -> list[Answer]:
    engine = load_engine(SPEC)
    for number, prompt in enumerate(prompts):
        engine.add(Request(id=number, prompt=prompt), job)
    assert engine.unfinished == len(prompts)
    answers: list[Answer] = []
    while engine.unfinished:
        answers += engine.step()
    return answers


def test_a_prompt_is_its_own_answer() -> None:
    answers = _run(["one two three", "four", "[fail] five"], Job(max_tokens=2))
    assert [(a.id, a.text, a.finish, bool(a.error)) for a in answers] == [
        (0, "one two", "length", False),
        (1, "four", "stop", False),
        (2, "", "error", True),
    ]


def test_a_choice_in_the_prompt_is_the_answer() -> None:
    (answer,) = _run(["a vegan stew"], Job(task="classify", choices=("vegan", "none", "other")))
    assert answer.text == "vegan"
    assert answer.scores is not None
    assert sum(answer.scores.values()) == pytest.approx(1)


def test_a_hanging_request_ends_with_its_cancellation() -> None:
    engine = load_engine(SPEC)
    engine.add(Request(id=7, prompt="[hang]"), Job())
    assert engine.step() == []
    assert engine.unfinished == 1
    engine.cancel([7])
    assert engine.unfinished == 0


def test_a_marker_with_a_file_acts_once(tmp_path: object) -> None:
    prompt = f"[fail:{tmp_path}/x] soup"
    first, second = _run([prompt, prompt], Job())
    assert first.finish == "error"
    assert second.finish == "stop"


def test_a_broken_engine_raises() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        _run(["[break]"], Job())
