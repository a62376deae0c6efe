"""Several sources are streamed together or held in memory together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.train.data.sources import LARGE_BYTES, DataSources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in (("half.jsonl", 0.6), ("rest.parquet", 0.6), ("large.csv", 2), ("a.csv", 0)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(int(size * LARGE_BYTES) or 1)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.jsonl").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("train", "more", "expected"),
    [
        (["half.jsonl"], {}, False),
        (["half.jsonl", "rest.parquet"], {}, True),  # Too large together.
        (["half.jsonl", {"path": "half.jsonl", "weight": 2}], {}, True),
        (["half.jsonl", "parts/*.jsonl"], {}, False),
        (["half.jsonl", "rest.parquet", "parts/*.jsonl"], {}, True),
        (["half.jsonl", "rest.parquet", "a.csv"], {}, False),  # One that cannot be streamed.
        (["half.jsonl", "rest.parquet", "owner/name"], {}, False),
        (["half.jsonl", "rest.parquet"], {"packing": True}, False),
        (["half.jsonl", "rest.parquet"], {"max_rows": 3}, False),
        (["half.jsonl", "rest.parquet"], {"streaming": False}, False),
        (["parts", "half.jsonl"], {"streaming": True}, True),
    ],
)
def test_sources_are_streamed_together(
    folder: Path, train: Any, more: dict[str, Any], expected: bool
) -> None:
    data = DataConfig.model_validate({"train": train, **more})
    assert DataSources(data, [folder]).is_streamed is expected


def test_a_source_that_cannot_be_streamed_is_named(folder: Path) -> None:
    data = DataConfig.model_validate({"train": ["half.jsonl", "owner/name"], "streaming": True})
    with pytest.raises(DataError, match="'owner/name' is not a file or folder"):
        _ = DataSources(data, [folder]).is_streamed
