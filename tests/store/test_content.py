"""The content of data and models that do not travel with a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.store.package.content import data_content, model_content
from llmops_kernel.store.package.hashes import digest_of


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "parts").mkdir(parents=True)
    for name in ("rows.jsonl", "parts/1.jsonl", "parts/2.jsonl", "model.safetensors", "log.out"):
        (folder / name).write_text(name)
    return folder


def test_files_folders_and_patterns_are_hashed_by_the_names_that_a_config_has(folder: Path) -> None:
    parts = {f"parts/{n}.jsonl": digest_of(f"parts/{n}.jsonl".encode()) for n in (1, 2)}
    rows = digest_of(b"rows.jsonl")
    absolute = str(folder / "rows.jsonl")
    assert data_content(["rows.jsonl", absolute], [folder]) == {"rows.jsonl": rows, absolute: rows}
    assert data_content(["parts"], [folder]) == parts
    assert data_content(["parts/*.jsonl"], [folder]) == parts
    paths = {str(folder / name): content for name, content in parts.items()}
    assert data_content([str(folder / "parts/*.jsonl")], []) == paths
    (folder / "rows.jsonl").write_text("other")
    assert data_content(["rows.jsonl"], [folder]) == {"rows.jsonl": digest_of(b"other")}


def test_what_is_elsewhere_or_too_large_is_not_known(folder: Path) -> None:
    urls = ["s3://bucket/rows.jsonl", "owner/set", "gone.jsonl"]
    assert data_content(urls, [folder]) == dict.fromkeys(urls)
    assert model_content("owner/no-such-model") == {"revision": None}
    assert model_content(str(folder)) == {"model.safetensors": digest_of(b"model.safetensors")}
    assert data_content(["parts", "rows.jsonl"], [folder], most_bytes=20) == {
        "parts/1.jsonl": None,
        "parts/2.jsonl": None,
        "rows.jsonl": digest_of(b"rows.jsonl"),
    }
