"""Files that an ignore file keeps at home although the run's own code names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.store.package.assets import at_home_line, covers, named_by, sources_of
from llmops_kernel.store.package.workspace import scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    (folder / "data" / "tiny").mkdir(parents=True)
    (folder / "local").mkdir()
    (folder / ".gitignore").write_text("*.bin\nlocal/\nsecrets.py\n.env\n__pycache__/\n")
    for name in ("data/tiny/train.bin", "data/tiny/other.bin", "local/rows.jsonl", "local/util.py"):
        (folder / name).write_text("x")
    (folder / "secrets.py").write_text("")
    (folder / ".env").write_text("A=1")
    (folder / "__pycache__").mkdir()
    return folder


def test_what_ignore_files_keep_at_home(root: Path) -> None:
    found = scan(root, cache=root.parent / "cache")
    assert found.ignored == ("data/tiny/other.bin", "data/tiny/train.bin", "local/", "secrets.py")
    assert list(found.files) == [".gitignore"]


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("import os\nos.path.join(data_dir, 'train.bin')", ["data/tiny/train.bin"]),
        ("open('./data/tiny/other.bin')", ["data/tiny/other.bin"]),
        ("open('local/rows.jsonl')", ["local/rows.jsonl"]),
        ("open('local/no-such-file')", []),
        ("import secrets", ["secrets.py"]),
        ("from local.util import x", ["local/util.py"]),
        ("print('nothing of it', 'train.csv')", []),
        ("def broken(", []),
    ],
)
def test_which_of_them_a_program_names(root: Path, code: str, named: list[str]) -> None:
    (root / "train.py").write_text(code)
    ignored = scan(root, cache=root.parent / "cache").ignored
    sources = sources_of({"script": "train.py"}, root)
    assert named_by(sources, ignored, root) == named


def test_the_sentence_says_how_it_travels() -> None:
    assert at_home_line([], what="train.py") == ""
    line = at_home_line(["a.bin"], what="train.py")
    assert "named in train.py: a.bin." in line
    assert "!a.bin in .llmopsignore" in line


def test_a_path_in_an_ignored_folder_is_covered() -> None:
    ignored = ("local/", "a.bin")
    assert covers(ignored, "local/x/y") == "local/"
    assert covers(ignored, "a.bin") == "a.bin"
    assert covers(ignored, "locals/x") == ""
