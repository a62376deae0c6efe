"""A run resumes only with the training data that its checkpoint was trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.examples import Example
from llmops_kernel.train.data.identity import FILE, differences, identity
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.plan import plan_stream
from tests.messages import missing
from tests.train.data.stream.files import rows, write_jsonl, write_parquet
from tests.train.test_loop import losses, run


def streamed(folder: Path) -> dict[str, Any]:
    plan = plan_stream(Source("data", [folder]))
    walk = SimpleNamespace(plan=plan)
    data: Any = SimpleNamespace(stream=SimpleNamespace(rows=SimpleNamespace(walk=walk)))
    return json.loads(json.dumps(identity(data)))  # type: ignore[no-any-return]


def held(*sequences: list[int]) -> dict[str, Any]:
    data: Any = SimpleNamespace(stream=None, train=[Example(one, one) for one in sequences])
    return identity(data)


def test_each_changed_file_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_jsonl(data / "a.jsonl", rows(20))
    write_jsonl(data / "b.jsonl", rows(20, 20))
    write_parquet(data / "c.parquet", rows(20, 40), group=5)
    before = streamed(tmp_path)
    assert differences(before, streamed(tmp_path), source="data") == []
    os.utime(data / "a.jsonl", (1, 1))  # As where a workspace is unpacked on a new cluster.
    assert differences(before, streamed(tmp_path), source="data") == []
    text = (data / "a.jsonl").read_text()
    (data / "a.jsonl").write_text(text.replace("0 ", "9 ", 1))
    assert differences(before, streamed(tmp_path), source="data") == [
        "a.jsonl has the same size and another content"
    ]
    (data / "a.jsonl").write_text(text + "\n")
    (data / "b.jsonl").rename(data / "d.jsonl")
    found = differences(before, streamed(tmp_path), source="data")
    assert found == [
        "b.jsonl is gone",
        "d.jsonl is new",
        f"a.jsonl has {len(text) + 1:,} bytes and had {len(text):,}",
    ]


def test_files_that_were_not_hashed_are_known_by_their_time() -> None:
    def one(version: str) -> dict[str, Any]:
        entry = {"size_bytes": 5, "version": version, "sha256": None}
        return {"files": {"a.jsonl": entry}}

    assert differences(one("5-1"), one("5-1"), source="s3://x") == []
    assert differences(one("5-1"), one("5-2"), source="s3://x") == [
        "a.jsonl was written again, with the same size"
    ]


def test_rows_in_memory_are_known_by_their_tokens() -> None:
    before = held([1, 2], [3])
    assert differences(before, held([1, 2], [3]), source="a.jsonl") == []
    for after, values in (
        (held([3], [1, 2]), ["another content"]),
        (held([1, 2], [3], [4]), ["3 sequences of 4 tokens", "2 sequences of 3 tokens"]),
        ({"files": {}}, ["streamed now"]),
    ):
        (text,) = differences(before, after, source="a.jsonl")
        assert missing(text, "a.jsonl", *values) == []


def test_rows_that_a_hook_formats_are_counted_only() -> None:
    def formatted(count: int) -> dict[str, Any]:
        data: Any = SimpleNamespace(stream=None, num_rows=count)
        return identity(data, is_formatted=True)

    assert differences(formatted(9), formatted(9), source="a.jsonl") == []
    assert differences(formatted(9), formatted(10), source="a.jsonl") == [
        "a.jsonl has 10 rows and had 9"
    ]


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_run_with_other_data_does_not_resume(
    make_config: Callable[..., Any],
    workspace: Path,
    tmp_path: Path,
    is_streamed: bool,
) -> None:
    config = make_config(data={"train": "train.jsonl", "streaming": is_streamed})
    folder = tmp_path / "run"
    assert max(losses(run(config, folder, workspace, stop_at=3))) == 3
    text = (workspace / "train.jsonl").read_text()
    (workspace / "train.jsonl").write_text(text + text.splitlines()[0] + "\n")
    with pytest.raises(DataError, match=r"not that of checkpoint-3: train\.jsonl ") as raised:
        run(config, folder, workspace)
    assert "llmops resubmit" in raised.value.remedy
    (workspace / "train.jsonl").write_text(text)  # Its time of change is another one now.
    assert sorted(losses(run(config, folder, workspace))) == [4, 5, 6]
    assert not list(folder.rglob(f"output/{FILE}"))
