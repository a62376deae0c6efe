"""Which training data is streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.train.data.sources import LARGE_BYTES, DataSources


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def chosen(tmp_path: Path, source: str, **more: Any) -> bool:
    return DataSources(DataConfig(train=source, **more), [tmp_path]).is_streamed


def test_large_files_are_streamed_unless_the_rows_are_needed_together(tmp_path: Path) -> None:
    sparse(tmp_path / "small.jsonl", LARGE_BYTES)
    sparse(tmp_path / "large.parquet", LARGE_BYTES + 1)
    sparse(tmp_path / "folder" / "a.jsonl", LARGE_BYTES)
    sparse(tmp_path / "folder" / "b.txt", LARGE_BYTES)
    assert not chosen(tmp_path, "small.jsonl")
    assert chosen(tmp_path, "large.parquet")
    assert not chosen(tmp_path, "folder")
    sparse(tmp_path / "folder" / "c.jsonl", 1)
    assert chosen(tmp_path, "folder")
    assert chosen(tmp_path, "folder/*.jsonl")
    assert not chosen(tmp_path, "absent.jsonl")
    assert not chosen(tmp_path, "some/hub-id")
    for other in ({"packing": True}, {"max_rows": 9}, {"streaming": False}):
        assert not chosen(tmp_path, "large.parquet", **other)
    assert chosen(tmp_path, "small.jsonl", streaming=True)
    assert not chosen(tmp_path, "folder/b.txt")
    sparse(tmp_path / "large.txt", LARGE_BYTES + 1)
    assert chosen(tmp_path, "large.txt")
    sparse(tmp_path / "large.csv", LARGE_BYTES + 1)
    assert not chosen(tmp_path, "large.csv")


def test_folders_saved_by_datasets_are_streamed_if_the_split_is_large(tmp_path: Path) -> None:
    for split, size in (("train", LARGE_BYTES + 1), ("test", LARGE_BYTES)):
        sparse(tmp_path / "saved" / split / "data-00000-of-00001.arrow", size)
        (tmp_path / "saved" / split / "state.json").touch()
    (tmp_path / "saved" / "dataset_dict.json").touch()
    assert chosen(tmp_path, "saved")
    assert chosen(tmp_path, "saved/train")
    assert not chosen(tmp_path, "saved/test")
    assert not chosen(tmp_path, "saved", train_split="test")


def test_a_hub_id_is_not_streamed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hub ids are not streamed") as caught:
        chosen(tmp_path, "some/hub-id", streaming=True)
    assert "hf://datasets" in caught.value.remedy
