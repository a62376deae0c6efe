from __future__ import annotations

import pytest

from llmops_kernel.config.counted import counted


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 workers"),
        (1, "1 worker"),
        (1.0, "1 worker"),
        (2, "2 workers"),
        (0.5, "0.5 workers"),
        (1200, "1,200 workers"),
        (None, "– workers"),
    ],
)
def test_a_noun_agrees_with_its_number(number: float | None, words: str) -> None:
    assert counted(number, "worker") == words
