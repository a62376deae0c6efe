from __future__ import annotations

import html.parser
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import RunNotFoundError
from llmops_kernel.store.diff import ABSENT, FileChange, RunDiff, diff_runs, differences, is_code
from llmops_kernel.store.package.packages import build
from llmops_kernel.store.package.workspace import scan
from llmops_kernel.store.record import GitState, RunRecord
from tests.store.test_workspace import fill


@pytest.mark.parametrize(
    ("a", "b", "rows"),
    [
        ({}, {}, []),
        ({"x": 1}, {"x": 1}, []),
        ({"o": {"lr": 1e-4, "w": 0}}, {"o": {"lr": 5e-5, "w": 0}}, [("o.lr", 1e-4, 5e-5)]),
        ({"x": None}, {"x": 0}, [("x", None, 0)]),
        ({"x": 1}, {}, [("x", 1, ABSENT)]),
        ({"t": ["a"]}, {"t": ["a", "b"]}, [("t", ["a"], ["a", "b"])]),
        ({"t": ("a",)}, {"t": ["a"]}, []),
        ({"d": {}}, {"d": {"k": 1}}, [("d", {}, ABSENT), ("d.k", ABSENT, 1)]),
        ({"l": [{"k": 1}]}, {"l": [{"k": 2}]}, [("l[0].k", 1, 2)]),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, [("a", 1, 2), ("b", 1, 2)]),
    ],
)
def test_differences_by_dotted_path(a, b, rows):
    assert differences(a, b) == rows


TREES = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


# A busy machine is slow, and says nothing about the strategy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS, CONFIGS)
def test_differences_are_empty_only_for_equals_and_mirror(a, b):
    assert (differences(a, b) == []) == (a == b)
    assert differences(b, a) == [(path, new, old) for path, old, new in differences(a, b)]


@pytest.fixture
def submit(store, tmp_path):
    def submit(run_id: str, files: dict[str, str], **fields):
        root = fill(tmp_path / run_id, files)
        for name, data in fields.pop("binary", {}).items():
            (root / name).write_bytes(data)
        snapshot = scan(root)
        packages = build(snapshot, store.packages)
        fields = {"config": {"seed": 1}, "versions": {"torch": "2.13.0"}} | fields
        record = RunRecord(
            run_id=run_id,
            name="menu",
            created_s=1.0,
            cluster="local",
            files=snapshot.hashes,
            code_hash=packages.code.hash,
            assets_hash=packages.assets.hash if packages.assets else "",
            package_hash=packages.library.hash,
            **fields,
        )
        store.create(record, config_yaml="")
        return record

    return submit


def test_config_code_and_environment(store, submit):
    submit("a", {"hooks.py": "x = 1\ny = 1\n", "gone.py": "g\n"}, config={"o": {"lr": 1e-4}})
    submit(
        "b",
        {"hooks.py": "x = 2\ny = 1\n", "new.py": "n\n"},
        config={"o": {"lr": 5e-5}},
        versions={"torch": "2.14.0"},
        git=GitState(revision="abc", branch="main"),
    )
    diff = diff_runs(store, "a", "b")
    assert diff.config == [("o.lr", 1e-4, 5e-5)]
    kinds = [(change.path, change.kind) for change in diff.code]
    assert kinds == [("gone.py", "removed"), ("hooks.py", "changed"), ("new.py", "added")]
    assert "-x = 1\n+x = 2\n y = 1\n" in diff.code[1].unified_diff
    assert ("torch", "2.13.0", "2.14.0") in diff.environment
    assert ("git.revision", ABSENT, "abc") in diff.environment
    lines = diff.text().splitlines()
    shown = ["- a", "+ b", "- o.lr: 0.0001", "+ o.lr: 5e-05", "-x = 1", "+x = 2", "+n", "-g"]
    assert [line for line in shown if line not in lines] == []


def test_equal_runs_say_so(store, submit):
    submit("a", {"m.py": "x\n"})
    submit("b", {"m.py": "x\n"})
    diff = diff_runs(store, "a", "b")
    assert diff.is_empty
    assert "same config, code and environment" in diff.text()
    assert "same config" in diff.to_html()


def test_binary_and_data_files_differ_by_hash(store, submit):
    one = submit("a", {"m.py": ""}, binary={"d.bin": b"\x00\x01", "bad.py": b"\xff\xfe"})
    two = submit("b", {"m.py": ""}, binary={"d.bin": b"\x00\x02", "bad.py": b"\xff\xfd"})
    shown = {change.path: change.unified_diff for change in diff_runs(store, "a", "b").code}
    assert sorted(shown) == ["bad.py", "d.bin"]
    for path, text in shown.items():
        assert one.files[path] in text
        assert two.files[path] in text


def test_line_ends_alone_are_reported(store, submit):
    submit("a", {}, binary={"m.py": b"x\ny\n"})
    submit("b", {}, binary={"m.py": b"x\r\ny\r\n"})
    assert diff_runs(store, "a", "b").code[0].unified_diff == "m.py: only line ends differ\n"


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_without_the_kept_package_the_hashes_remain(store, submit, damage):
    one = submit("a", {"m.py": "x\n"})
    submit("b", {"m.py": "y\n"})
    package = store.packages / f"{one.code_hash}.zip"
    package.unlink() if damage == "missing" else package.write_bytes(b"no zip")
    (change,) = diff_runs(store, "a", "b").code
    assert change.kind == "changed"
    assert one.files["m.py"] in change.unified_diff


def test_references_are_resolved(store, submit):
    submit("menu-a", {})
    with pytest.raises(RunNotFoundError, match="menu-a"):
        diff_runs(store, "last", "menu-x")


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


EVIL = "</pre><script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


def test_html_carries_no_foreign_markup(store, submit):
    name = "<img src=x onerror=alert(1)>.py"
    submit("a", {name: "ok\n", "m.py": f"{EVIL}\n"}, config={EVIL: EVIL, "l": [EVIL]})
    submit("b", {name: f"{EVIL}\n"}, config={EVIL: "other"}, versions={EVIL: EVIL})
    page = diff_runs(store, "a", "b").to_html()
    parser = Tags()
    parser.feed(page)
    ours = {"div", "table", "tr", "th", "td", "details", "summary", "code", "pre", "span"}
    assert set(parser.tags) <= ours
    assert set(parser.attributes) <= {"class", "style", "open"}
    assert page.count("&lt;script&gt;") >= 4


def test_a_diff_of_anything_is_safe_html():
    change = FileChange(path=EVIL, kind="added", unified_diff=f"+{EVIL}\n{EVIL}")
    diff = RunDiff(a=EVIL, b=EVIL, config=[(EVIL, EVIL, {EVIL: 1})], code=[change], environment=[])
    parser = Tags()
    parser.feed(diff.to_html())
    assert {"script", "img"} & set(parser.tags) == set()


def test_a_very_long_diff_is_cut(store, submit):
    submit("a", {"m.py": ""})
    submit("b", {"m.py": "".join(f"x{n}\n" for n in range(5000))})
    lines = diff_runs(store, "a", "b").code[0].unified_diff.splitlines()
    assert len(lines) == 2001
    assert lines[-1].endswith("more lines")


def test_packages_are_read_from_the_store(store):
    assert store.packages == Path(store.root) / "packages"


def test_it_shows_itself(store, submit):
    submit("a", {"m.py": "x\n"})
    submit("b", {"m.py": "y\n"})
    diff = diff_runs(store, "a", "b")
    assert repr(diff) == str(diff) == diff.text()
    assert diff._repr_html_() == diff.to_html()
    assert "changed m.py (+1 -1)" in diff.text()


NOTEBOOK = {
    "nbformat": 4,
    "cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "x = 1\ny = 2", "outputs": [], "execution_count": 1},
    ],
}


def notebook(**cell: object) -> str:
    first, last = NOTEBOOK["cells"]
    return json.dumps({**NOTEBOOK, "cells": [first, last | cell]}, indent=1)


def test_of_a_notebook_only_its_cells_are_code(store, submit):
    outputs = [{"output_type": "stream", "name": "stdout", "text": "9\n"}]
    included = {".llmopsignore": "!*.ipynb\n"}  # Notebooks are left out of packages otherwise.
    first = {"n.ipynb": notebook(), "o.ipynb": notebook(), "p.ipynb": "{}"}
    submit("a", included | first)
    submit(
        "b",
        included
        | {
            "n.ipynb": notebook(source="x = 2\ny = 2", outputs=outputs),
            "o.ipynb": notebook(outputs=outputs, execution_count=2),
            "p.ipynb": '{"cells": 1}',
        },
    )
    cells, outputs_only, unknown = diff_runs(store, "a", "b").code
    assert cells.unified_diff.endswith(
        "+++ b/n.ipynb\n@@ -2,5 +2,5 @@\n # Title\n words\n # %% [code]\n-x = 1\n+x = 2\n y = 2\n"
    )
    assert (cells.is_code, cells.counts) == (True, "+1 -1")
    assert (
        outputs_only.unified_diff == "o.ipynb: only outputs and metadata of the notebook differ\n"
    )
    assert (outputs_only.is_code, outputs_only.counts) == (False, "")
    assert unknown.counts == "+1 -1"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *((name, True) for name in ("hooks.py", "a/b/m.train.yaml", "Makefile", "ds_config.json")),
        *(
            (name, True)
            for name in ("requirements-dev.txt", "data/prepare.py", "T.IPYNB", "Dockerfile")
        ),
        *((name, False) for name in ("rows.jsonl", "train.log", "notes.txt", "picture.png")),
        *((name, False) for name in ("data/rows.json", "outputs/a/config.yaml", "WandB/x.json")),
    ],
)
def test_what_is_code(path, expected):
    assert is_code(path) == expected


def test_other_files_are_folded(store, submit):
    submit("a", {"m.py": "x\n", "rows.jsonl": "{}\n"})
    submit("b", {"m.py": "y\n", "rows.jsonl": '{"secret": 1}\n', "train.log": "l\n"})
    diff = diff_runs(store, "a", "b")
    assert [change.is_code for change in diff.code] == [True, False, False]
    text, page = diff.text(), diff.to_html()
    assert "other files\n  changed rows.jsonl (+1 -1)\n  added train.log (+1 -0)" in text
    assert "secret" not in text
    assert (
        "<details><summary>2 other files (data, logs, outputs)</summary><details><summary>" in page
    )
    assert "<details open><summary>changed <code>m.py</code> +1 -1</summary>" in page


def test_a_count_of_lines_that_is_not_known_is_not_shown():
    def counts(text: str) -> str:
        return FileChange(path="m.py", kind="changed", unified_diff=text).counts

    assert counts("--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n---x\n+++y\n") == "+1 -1"
    assert counts("m.py: only line ends differ\n") == ""
    assert counts("--- a\n+++ b\n+1\n... and 3 more lines\n") == ""


def test_a_large_data_file_is_not_compared_by_lines(store, submit):
    submit("a", {"rows.jsonl": "{}\n" * 90_000})
    submit("b", {"rows.jsonl": "{}\n" * 90_001})
    (change,) = diff_runs(store, "a", "b").code
    assert change.unified_diff.startswith("rows.jsonl: binary, large or no longer kept; content ")
    assert (change.is_code, change.counts) == (False, "")
