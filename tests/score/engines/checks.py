"""What must be true of the answers of the table in `cases`, whatever the engine and the model."""

from __future__ import annotations

import itertools
import json
import math

import pytest

from llmops_kernel.score.engines.protocol import Answer
from tests.score.engines.cases import CASES

Answers = dict[str, list[Answer]]


def final(answers: Answers, name: str) -> list[Answer]:
    return sorted((one for one in answers[name] if one.is_final), key=lambda one: one.id)


def texts(answers: Answers, name: str) -> list[str]:
    return [one.text for one in final(answers, name)]


def check(answers: Answers, *, context: int) -> None:
    """All of it: each rule is a function below."""
    for case in CASES:
        found = final(answers, case.name)
        assert [one.id for one in found] == list(range(len(case.requests))), case.name
    _check_written(answers)
    _check_sampled(answers)
    _check_chosen(answers)
    _check_json(answers)
    _check_likelihood(answers)
    _check_most_probable(answers)
    _check_length(answers, context)
    _check_stream(answers)
    _check_adapters(answers)


def _check_written(answers: Answers) -> None:
    assert texts(answers, "greedy") == texts(answers, "greedy again")
    for one in [*final(answers, "greedy"), *final(answers, "text")]:
        assert one.error == ""
        assert one.finish in ("stop", "length")
        assert 1 <= one.output_tokens <= 16
        assert one.prompt_tokens > 0
        assert "<|" not in one.text
        if one.finish == "length":
            assert one.output_tokens in (8, 16)
    (stopped,) = final(answers, "stop")
    assert "e" not in stopped.text


def _check_sampled(answers: Answers) -> None:
    """The same seed writes the same; rows and seeds differ from each other."""
    sampled = texts(answers, "sampled")
    assert sampled == texts(answers, "sampled again")
    assert sampled != texts(answers, "another seed")
    assert sampled != texts(answers, "greedy")
    assert len(set(sampled)) > 1


def _check_chosen(answers: Answers) -> None:
    for name in ("classify", "one classifies"):
        for one in final(answers, name):
            assert one.scores is not None
            assert sum(one.scores.values()) == pytest.approx(1)
            assert one.text == max(one.scores, key=one.scores.__getitem__)
            assert one.logprob is not None
            assert one.logprob < 0


def _check_json(answers: Answers) -> None:
    for one in final(answers, "json"):
        parsed = json.loads(one.text)
        assert set(parsed) == {"name", "is_vegan", "price"}
        assert isinstance(parsed["is_vegan"], bool)
        assert one.finish == "stop"
    (broken,) = final(answers, "broken schema")
    assert broken.finish == "error"
    assert "schema" in broken.error


def _check_likelihood(answers: Answers) -> None:
    """The target's probability is what classify compares; a prompt's own needs no target."""
    yes, no, depends = final(answers, "target")
    assert all(one.text == "" for one in (yes, no, depends))
    assert depends.output_tokens > no.output_tokens >= 1
    chosen = final(answers, "classify")
    assert chosen[0].scores is not None
    for place, (choice, one) in enumerate(zip(chosen[0].scores, (yes, no, depends), strict=True)):
        best = chosen[place]
        assert best.scores is not None
        assert best.logprob is not None
        assert one.logprob is not None
        expected = best.logprob + math.log(best.scores[choice] / best.scores[best.text])
        assert one.logprob == pytest.approx(expected, abs=0.02)
    for one in final(answers, "own tokens"):
        assert one.output_tokens == one.prompt_tokens - 1
        assert one.logprob is not None
        assert one.logprob < 0


def _check_most_probable(answers: Answers) -> None:
    """The target is the whole answer with its end, and its own probabilities are among those."""
    for one, bare in zip(final(answers, "most probable"), final(answers, "target"), strict=True):
        assert one.target_tokens is not None
        assert one.top_tokens is not None
        assert one.top_logprobs is not None
        assert one.logprob is not None
        assert len(one.target_tokens) == one.output_tokens > bare.output_tokens
        for tokens, values in zip(one.top_tokens, one.top_logprobs, strict=True):
            assert len(set(tokens)) == len(values) == 3
            assert values == sorted(values, reverse=True)
            assert math.fsum(map(math.exp, values)) <= 1 + 1e-5
    (unnamed,) = final(answers, "no reference")
    assert "reference" in unnamed.error


def _check_length(answers: Answers, context: int) -> None:
    long, short = final(answers, "too long")
    assert long.finish == "error"
    assert f"{context:,}" in long.error
    assert "tokens" in long.error
    assert short.error == ""
    (end,) = final(answers, "at the end")
    if end.finish == "length":
        assert end.prompt_tokens + end.output_tokens == min(context, end.prompt_tokens + 400)


def _check_stream(answers: Answers) -> None:
    parts = [one for one in answers["stream"] if one.id == 0]
    assert len(parts) > 1 or parts[0].text == ""
    assert [one.is_final for one in parts] == [False] * (len(parts) - 1) + [True]
    for before, after in itertools.pairwise(parts):
        assert after.text.startswith(before.text)
        assert after.output_tokens >= before.output_tokens


def _check_adapters(answers: Answers) -> None:
    """Each adapter has answers of its own, and the base its old ones after them."""
    hot = [final(answers, f"hot {name}")[0].logprob for name in ("", "one", "two")]
    assert None not in hot
    assert len({round(value or 0.0, 2) for value in hot}) == 3
    for name in ("one", "two"):
        assert all(one.error == "" for one in final(answers, name))
    assert texts(answers, "greedy") == texts(answers, "base again")
    (missing,) = final(answers, "no adapter there")
    assert "adapter_config.json" in missing.error
    (other,) = final(answers, "of another base")
    assert "another base model" in other.error
