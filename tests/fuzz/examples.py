"""Random values from a seed: the same ones in each CI run, others with `python -m tests.fuzz`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SEED_ENV_VAR: Final = "LLMOPS_FUZZ_SEED"
TIMES_ENV_VAR: Final = "LLMOPS_FUZZ_TIMES"
LIMIT_S: Final = 25.0
"""Of one test: a round, which is all tests of this folder, takes less than three minutes in CI."""
PROPERTY: Final = "llmops_fuzz"
T = TypeVar("T")

HOSTILE_WORDS: Final = (
    *("", " ", "null", "~", "true", "NaN", ".inf", "-1", "0", "1e999", "9" * 400, "0x", "1_0"),
    *("\0", "\ud800", "\u202e", "\ufeff", "\x85", "a\r\nb", "'", '"', "*a", "&a", "!!int x", "<<"),
    *("../../etc/passwd", "/", "~/.ssh", "file:///etc/passwd", "s3://", "://", "$(id)", "%00"),
    *("{", "}", "[", "]", ": ", "- ", "# ", "|", ">", "?", "---", "...", "\t", "=", ".", "a.b"),
)


@dataclass(frozen=True)
class Ran:
    """What one call of `examples` gave out."""

    wanted: int
    ran: int
    took_s: float
    """With what the test did with them."""


_RAN: list[Ran] = []


def taken() -> list[dict[str, Any]]:
    """Return what ran since the last call; the end of pytest's report prints it."""
    found = [asdict(one) for one in _RAN]
    _RAN.clear()
    return found


def examples(
    strategy: st.SearchStrategy[T], count: int, *, limit_s: float = LIMIT_S
) -> Iterator[T]:
    """Yield `count` values of the strategy, also for tests that `given` cannot run: async ones.

    Fewer once drawing and using them have taken `limit_s`. More rounds have more of both.
    """
    times = int(os.environ.get(TIMES_ENV_VAR, "1"))
    began_s, ran = time.monotonic(), 0
    until_s = began_s + times * limit_s
    try:
        # At most half of the time is for drawing, so that what was drawn is used.
        for value in _drawn(strategy, times * count, until_s=(began_s + until_s) / 2):
            if time.monotonic() >= until_s:
                return
            ran += 1
            yield value
    finally:
        _RAN.append(Ran(times * count, ran, time.monotonic() - began_s))


def _drawn(strategy: st.SearchStrategy[T], count: int, *, until_s: float) -> list[T]:
    found: list[T] = []

    @seed(int(os.environ.get(SEED_ENV_VAR, "0")))
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        if time.monotonic() >= until_s:
            raise SkipTest("time is up")  # Ends hypothesis at once.
        found.append(value)

    with suppress(SkipTest):
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
