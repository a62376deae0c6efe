"""A model behind a URL is copied once, whole, and again when it has changed."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from llmops_kernel.errors import MissingDependencyError, ModelError
from llmops_kernel.models.fetch import local_folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/{tmp_path.name}/model/config.json", b"{}")
    memory.pipe_file(f"/{tmp_path.name}/model/sub/weights.bin", b"12345")
    return f"memory://{tmp_path.name}/model"


def test_what_is_no_url_is_returned_as_it_is() -> None:
    assert [local_folder(one) for one in ("tiny-llama", "/a/b", "owner/name")] == [
        "tiny-llama",
        "/a/b",
        "owner/name",
    ]


def test_it_is_copied_once_and_again_when_it_has_changed(url: str, tmp_path: Path) -> None:
    folder = Path(local_folder(url, tmp_path / "cache"))
    assert (folder / "sub" / "weights.bin").read_bytes() == b"12345"
    (folder / "mark").touch()
    assert local_folder(url, tmp_path / "cache") == str(folder)
    assert (folder / "mark").exists()
    fsspec.filesystem("memory").pipe_file(f"{url.removeprefix('memory:/')}/config.json", b"{ }")
    assert local_folder(url, tmp_path / "cache") != str(folder)


def test_a_url_that_is_no_model_is_refused(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/x/README.md", b"hi")
    with pytest.raises(ModelError, match=r"has no config\.json or adapter_config\.json"):
        local_folder(f"memory://{tmp_path.name}/x", tmp_path)


def test_a_copy_that_fails_leaves_nothing(url: str, tmp_path: Path) -> None:
    (tmp_path / "fetched").write_text("a file in place of the folder")
    with pytest.raises((ModelError, FileExistsError)):
        local_folder(url, tmp_path)


def test_a_store_whose_package_is_missing_is_named() -> None:
    with pytest.raises(MissingDependencyError, match="smb://host/model"):
        local_folder("smb://host/model")
