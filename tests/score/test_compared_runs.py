"""Two score runs of a real cluster, compared from Python and the command line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import llmops_kernel as llmops
from tests.score.conftest import numbered

pytestmark = pytest.mark.ray


def test_two_runs_of_one_table(score: Callable[..., llmops.Run]) -> None:
    first = score(numbered(250))
    # The engine repeats its prompt: what is asked with "!" is not the reference.
    second = score(numbered(250), **{"prompt.template": "{text}!"})
    third = score(numbered(250), **{"input.limit": 20})
    for run in (first, second, third):
        run.wait(120)
    compared = llmops.compare(second, first)
    change = compared.scores.metrics[0]
    assert (change.name, change.before, change.after) == ("exact_match", 1.0, 0.0)
    assert (change.delta, change.low, change.high) == (-1.0, -1.0, -1.0)
    assert compared.scores.counts["flipped"] == 250
    row = compared.rows("worse").iloc[7]
    assert (row["key"], row["before"], row["after"]) == ("r7", "number 7", "number 7!")
    assert "exact_match" in compared.text()
    shorter = llmops.compare(first, third).scores
    assert shorter.stability.identical == 1.0
    assert (shorter.counts["all"], shorter.counts["only_before"]) == (20, 230)
