"""Random values from a seed: the same ones in each CI run, others with `python -m tests.fuzz`."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SEED_ENV_VAR: Final = "LLMOPS_FUZZ_SEED"
TIMES_ENV_VAR: Final = "LLMOPS_FUZZ_TIMES"
T = TypeVar("T")

HOSTILE_WORDS: Final = (
    *("", " ", "null", "~", "true", "NaN", ".inf", "-1", "0", "1e999", "9" * 400, "0x", "1_0"),
    *("\0", "\ud800", "\u202e", "\ufeff", "\x85", "a\r\nb", "'", '"', "*a", "&a", "!!int x", "<<"),
    *("../../etc/passwd", "/", "~/.ssh", "file:///etc/passwd", "s3://", "://", "$(id)", "%00"),
    *("{", "}", "[", "]", ": ", "- ", "# ", "|", ">", "?", "---", "...", "\t", "=", ".", "a.b"),
)


def examples(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Return `count` values of the strategy, also for tests that `given` cannot run: async ones."""
    found: list[T] = []

    @seed(int(os.environ.get(SEED_ENV_VAR, "0")))
    @settings(
        max_examples=count * int(os.environ.get(TIMES_ENV_VAR, "1")),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def words() -> st.SearchStrategy[str]:
    # Surrogates too: they arrive from file names and from JSON.
    return st.sampled_from(HOSTILE_WORDS) | st.text(st.characters(codec=None), max_size=20)


def json_values() -> st.SearchStrategy[Any]:
    plain = (
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats()
        | words()
        | st.sampled_from([[], {}, [[]], [None], {"": None}])
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words(), inner, max_size=3),
        max_leaves=6,
    )


@st.composite
def mutated(draw: st.DrawFn, texts: tuple[str, ...]) -> str:
    """One of the texts with a few pieces cut out, doubled, moved or replaced."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 40)))
        piece = draw(st.sampled_from([text[begin:end] * 2, text[end : end + 30], ""]) | words())
        text = text[:begin] + piece + text[end:]
    return text
