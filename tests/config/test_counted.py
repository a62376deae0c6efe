from __future__ import annotations

import pytest

from llmops_kernel.config.counted import counted, counted_resources


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


def test_resources_are_counted_with_their_nouns_and_memory_in_gib() -> None:
    amounts = {"CPU": 2.0, "GPU": 1.0, "object_store_memory": 3 * 1024**3}

    assert counted_resources(amounts) == "2 CPUs and 1 GPU and 3 GiB of object store memory"
