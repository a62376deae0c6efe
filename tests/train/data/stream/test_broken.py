"""All rows are read before the training: broken ones are named, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError, HookError, LLMOpsError
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.broken import check_rows
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.hooks import Hooks
from tests.train.data.stream.files import rows, write_jsonl, write_parquet

Make = Callable[..., Any]
GROUP, NUMBER = 3, 2701
"""The row is the middle one of row group 900."""


@pytest.fixture
def checked(make_config: Make, tmp_path: Path) -> Callable[..., list[LLMOpsError]]:
    def check(*sources: str, world: int = 1, hooks: Hooks | None = None) -> list[LLMOpsError]:
        """Return what the workers raise, each without the others."""
        train = sources[0] if len(sources) == 1 else list(sources)
        config = make_config(data={"train": train, "on_error": "check"})
        plans = [plan_stream(Source(source, [tmp_path])) for source in sources]
        found = []
        for rank in range(world):
            try:
                check_rows(
                    config,
                    plans,
                    hooks or Hooks(),
                    rank=rank,
                    world=world,
                    cache=tmp_path / f"cache-{rank}",
                )
            except LLMOpsError as error:
                found.append(error)
        return found

    return check


def texts(middle: bytes | None) -> pa.Array:
    """3,000 texts, one of which is another; as bytes that nobody looks at."""
    every: list[bytes | None] = [b"%d some text" % number for number in range(3000)]
    every[NUMBER] = middle
    return pa.array(every, pa.binary())


BROKEN: dict[str, tuple[bytes | None, str]] = {
    "null": (None, r"`text` is null"),
    "not UTF-8": (b"caf\xe9 is no UTF-8", r" has text that is not UTF-8"),
}


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_row_of_row_group_900_is_named(
    tmp_path: Path, checked: Callable[..., list[LLMOpsError]], kind: str, world: int
) -> None:
    middle, words = BROKEN[kind]
    table = pa.Table.from_arrays([texts(middle).view(pa.string())], names=["text"])
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=GROUP)
    (error,) = checked("data.parquet", world=world)
    assert isinstance(error, DataError)
    assert error.message.startswith("data.parquet, row 2,702 (row group 900)")
    assert words in error.message
    assert error.remedy


def test_the_first_broken_rows_are_named_in_their_order_and_the_others_counted(
    tmp_path: Path, checked: Callable[..., list[LLMOpsError]]
) -> None:
    broken: Sequence[Any] = ["{", *rows(200), {"txet": "a"}, *rows(9), "[]", "[]", "7"]
    write_jsonl(tmp_path / "a.jsonl", rows(20))
    write_jsonl(tmp_path / "b.jsonl", broken)
    (error,) = checked("a.jsonl", "b.jsonl")
    assert error.message.startswith("5 rows of a.jsonl and b.jsonl are broken: b.jsonl, row 1 ")
    assert "; b.jsonl, row 202, read with format=auto: " in error.message
    assert "; b.jsonl, row 212 is a list" in error.message
    assert error.message.endswith("; and 2 more.")
    assert "data.on_error=skip" in error.remedy


def test_rows_are_read_again_when_their_files_change_or_a_hook_formats_them(
    tmp_path: Path, checked: Callable[..., list[LLMOpsError]]
) -> None:
    seen: list[str] = []

    def hook(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["text"])
        return row

    write_parquet(tmp_path / "data.parquet", rows(60), group=7)
    for _ in range(2):
        assert checked("data.parquet", hooks=Hooks(format_example=hook)) == []
    assert len(seen) == 120
    assert checked("data.parquet") == []
    content = bytearray((tmp_path / "data.parquet").read_bytes())
    stands_since = (tmp_path / "data.parquet").stat()
    content[4:40] = bytes(36)
    (tmp_path / "data.parquet").write_bytes(content)
    (error,) = checked("data.parquet")
    assert error.message.startswith("data.parquet, row group 0 (rows 1 to 7) cannot be read")
    # As it was looked at: nothing is read.
    os.utime(tmp_path / "data.parquet", ns=(stands_since.st_atime_ns, stands_since.st_mtime_ns))
    assert checked("data.parquet") == []


def test_what_a_hook_raises_is_named_with_its_row(
    tmp_path: Path, checked: Callable[..., list[LLMOpsError]]
) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(50))

    def hook(row: dict[str, Any]) -> dict[str, Any]:
        return {"text": {"31": None}.get(row["text"].split()[0], row["text"]) or row["missing"]}

    (error,) = checked("data.jsonl", hooks=Hooks(format_example=hook))
    assert isinstance(error, HookError)
    assert "data.jsonl, row 32" in error.message
