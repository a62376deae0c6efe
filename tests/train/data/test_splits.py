"""Of a folder only the files of the split are trained on, held in memory or streamed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.train.data.preview.look import RowRequest
from llmops_kernel.train.data.preview.sample import sample
from llmops_kernel.train.data.sources import LARGE_BYTES, DataSources, Source, splits_of
from llmops_kernel.train.data.stream.plan import plan_stream

LAYOUTS = {
    "files": ["train.jsonl", "test.jsonl", "validation.jsonl"],
    "more words": ["my_train-1.jsonl", "my_train-2.jsonl", "dev.jsonl", "x evaluation.jsonl"],
    "folders": ["train/a.jsonl", "train/deep/test.jsonl", "test/a.jsonl"],
    "folders with more words": ["my-training 1/a.jsonl", "val/b.jsonl"],
    "shards": ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl",
               "data/test-00000-of-00001.jsonl", "train.jsonl"],
    "no words": ["a.jsonl", "trained.jsonl", "contest.jsonl", "deep/b.jsonl"],
    "only one split": ["train.jsonl", "other.jsonl"],
}  # fmt: skip


def write(folder: Path, names: list[str]) -> Path:
    """A folder of files whose rows say where they stand."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) + "\n")
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_has_the_rows_that_datasets_finds(tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path / "set", LAYOUTS[layout])
    in_memory = {row["text"] for row in Source("set", [tmp_path]).load()}
    plan = plan_stream(Source("set", [tmp_path]))
    assert {file.name for file in plan.files} == in_memory
    url = {row["text"] for row in Source(f"file://{folder}", []).load()}
    assert url == in_memory


def test_a_folder_behind_a_url_has_the_same_splits() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("train.jsonl", "test.jsonl", "validation.jsonl"):
        memory.pipe(f"/splits-test/{name}", json.dumps({"text": name}).encode())
    url = "memory://splits-test"
    assert Source(url, []).load() == [{"text": "train.jsonl"}]
    assert Source(url, [], "validation").load() == [{"text": "validation.jsonl"}]
    (file,) = plan_stream(Source(url, [])).files
    assert file.name == "train.jsonl"
    assert len(plan_stream(Source(f"{url}/*.jsonl", [])).files) == 3
    (file,) = plan_stream(Source(f"{url}/test.jsonl", [])).files
    assert file.name == "test.jsonl"


def test_the_preview_shows_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "set", LAYOUTS["files"])
    found = sample(RowRequest(Source("set", [tmp_path]), None, is_streamed=True), count=10, seed=0)
    assert [one.row for one in found.rows] == [{"text": "train.jsonl"}]


def test_a_missing_split_names_those_there_are(tmp_path: Path) -> None:
    write(tmp_path / "set", ["test.jsonl", "validation.jsonl"])
    with pytest.raises(DataError, match="its files are validation, test") as raised:
        plan_stream(Source("set", [tmp_path]))
    assert "data.train_split" in raised.value.remedy
    (file,) = plan_stream(Source("set", [tmp_path], "test")).files
    assert file.name == "test.jsonl"


def test_the_splits_of_a_dataset_card_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", ["one.jsonl", "two.jsonl", "test.jsonl"])
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n"
        "    path: two.jsonl\n  - split: test\n    path: one.jsonl\n---\n# Rows\n"
    )
    assert Source("set", [tmp_path]).load() == [{"text": "two.jsonl"}]
    (file,) = plan_stream(Source("set", [tmp_path])).files
    assert file.name == "two.jsonl"


def test_names_that_say_nothing_are_no_splits() -> None:
    assert splits_of(["a.jsonl", "trained.jsonl", "latest.jsonl"]) == {}
    assert splits_of(["train-test.jsonl"]) == {
        "train": ["train-test.jsonl"],
        "test": ["train-test.jsonl"],
    }


@pytest.mark.parametrize(
    ("others", "streamed"),
    [
        ([], True),
        (["b.parquet"], True),
        (["b.csv"], False),
        (["b.arrow"], True),
        (["list.json"], False),
        (["test.csv"], True),  # Not trained on.
        (["notes.txt"], True),
    ],
)
def test_a_large_folder_is_streamed_if_all_of_its_training_files_can_be(
    tmp_path: Path, others: list[str], streamed: bool
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    first = "train-1.jsonl" if others == ["test.csv"] else "a.jsonl"
    large(folder / first, '{"text": "x"}\n')
    for name in others:
        (folder / name).write_text('[{"text": "x"}]')
    assert DataSources(DataConfig(train="set"), [tmp_path]).is_streamed == streamed
    if streamed and others not in (["b.parquet"], ["b.arrow"]):
        assert plan_stream(Source("set", [tmp_path])).parts


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.json", "rows.JSONL"])
def test_lines_of_json_are_streamed_whatever_their_file_is_called(
    tmp_path: Path, name: str
) -> None:
    large(tmp_path / name, '{"text": "x"}\n')
    assert DataSources(DataConfig(train=name), [tmp_path]).is_streamed
    assert plan_stream(Source(name, [tmp_path])).parts
    large(tmp_path / name, '[{"text": "x"}]')
    assert DataSources(DataConfig(train=name), [tmp_path]).is_streamed == (
        not name.endswith(".json")
    )


def large(path: Path, begin: str) -> None:
    """A file of more than is held in memory, of which the disk keeps only its beginning."""
    path.write_text(begin)
    os.truncate(path, LARGE_BYTES + 1)
