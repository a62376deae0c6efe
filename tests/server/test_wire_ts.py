from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from llmops_kernel.server import wire_ts
from llmops_kernel.server.wire.common import Body, Wire


def test_the_committed_file_is_what_the_models_say() -> None:
    assert wire_ts.TARGET.read_text(encoding="utf-8") == wire_ts.typescript(), "make wire"


class Inner(Wire):
    """Two lines

    of words."""

    state: Literal["a", "b"] | None


class Outer(Wire):
    number: float | None = None
    """A number."""
    pairs: list[tuple[int, str]] = []
    anything: dict[str, Any] = {}
    inner: tuple[Inner, ...]
    unions: list[int | str]


class Asked(Body):
    must: bool
    may: int = 3


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        (
            Outer,
            [
                "export interface Outer {",
                "  /** A number. */",
                "  number: number | null;",
                "  pairs: [number, string][];",
                "  anything: Record<string, unknown>;",
                "  inner: Inner[];",
                "  unions: (number | string)[];",
            ],
        ),
        (Inner, ["  state: 'a' | 'b' | null;", " * of words."]),
        (Asked, ["  must: boolean;", "  may?: number;"]),
    ],
)
def test_types(model: type[BaseModel], lines: list[str]) -> None:
    text = wire_ts.typescript((model,)).splitlines()
    assert [line for line in lines if line not in text] == []


def test_a_model_that_is_only_contained_is_written_too() -> None:
    assert "export interface Inner {" in wire_ts.typescript((Outer,))


def test_a_type_without_a_translation_is_an_error() -> None:
    class Odd(Wire):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        what: memoryview

    with pytest.raises(TypeError, match="memoryview"):
        wire_ts.typescript((Odd,))
