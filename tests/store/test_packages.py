from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import WorkspaceError
from llmops_kernel.store.package.assets import ASSETS_FILE, link_assets
from llmops_kernel.store.package.packages import MAX_UPLOAD_BYTES, Package, build, split
from llmops_kernel.store.package.workspace import scan
from tests.store.test_workspace import fill

FILES = {
    "hooks.py": "def format_example(row): ...\n",
    "lora.train.yaml": "seed: 1\n",
    "Makefile": "all:\n",
    "big.py": "x = 1\n" * 20_000,
    "data/train.jsonl": '{"a": 1}\n',
    "data/notes.txt": "n" * 70_000,
}


@pytest.fixture
def root(tmp_path):
    return fill(tmp_path / "work", FILES)


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "packages"


def contents(package: Package) -> dict[str, bytes]:
    with zipfile.ZipFile(package.path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_code_data_and_library_travel_apart(root, kept):
    packages = build(scan(root), kept)
    code, assets = contents(packages.code), contents(packages.assets)
    assert list(code) == [ASSETS_FILE, "Makefile", "big.py", "hooks.py", "lora.train.yaml"]
    folder = f"llmops_assets_{packages.assets.hash}"
    assert list(assets) == [f"{folder}/data/notes.txt", f"{folder}/data/train.jsonl"]
    assert json.loads(code[ASSETS_FILE]) == {
        "hash": packages.assets.hash,
        "files": ["data/notes.txt", "data/train.jsonl"],
        "folder": folder,
    }
    library = contents(packages.library)
    assert not [name for name in library if "/labextension/" in name]  # No use to a worker.
    assert "llmops_kernel/store/package/packages.py" in library
    strange = [name for name in library if "__pycache__" in name or "test" in name]
    assert strange == []


def test_names_are_rays(root, kept):
    code = build(scan(root), kept).code
    assert code.name == f"_ray_pkg_{code.hash}.zip"
    assert code.uri == f"gcs://{code.name}"
    assert code.path == kept / f"{code.hash}.zip"
    assert code.size_bytes == code.path.stat().st_size


def test_one_edited_line_changes_only_the_code_package(root, kept):
    before = build(scan(root), kept)
    (root / "hooks.py").write_text("def format_example(row): return 1\n")
    after = build(scan(root), kept)
    assert after.code.hash != before.code.hash
    assert (after.assets, after.library) == (before.assets, before.library)


def test_the_same_content_elsewhere_makes_the_same_bytes(root, kept, tmp_path):
    other = fill(tmp_path / "other", dict(reversed(FILES.items())))
    os.utime(other / "hooks.py", (1, 1))
    a, b = build(scan(root), kept), build(scan(other), tmp_path / "packages-b")
    for mine, theirs in ((a.code, b.code), (a.assets, b.assets), (a.library, b.library)):
        assert mine.hash == theirs.hash
        assert mine.path.read_bytes() == theirs.path.read_bytes()


def test_mode_name_and_content_each_count(root, kept):
    def code_hash() -> str:
        return build(scan(root), kept).code.hash

    seen = [code_hash()]
    (root / "Makefile").chmod(0o755)
    seen.append(code_hash())
    (root / "Makefile").rename(root / "makefile")
    seen.append(code_hash())
    (root / "makefile").write_text("none:\n")
    seen.append(code_hash())
    assert len(set(seen)) == 4


def test_executables_stay_executable(tmp_path, kept):
    root = fill(tmp_path / "work", {"a.sh": "", "b.sh": ""})
    (root / "a.sh").chmod(0o700)
    with zipfile.ZipFile(build(scan(root), kept).code.path) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert (modes["a.sh"], modes["b.sh"]) == (0o100755, 0o100644)


def test_a_workspace_without_data_or_without_anything(tmp_path, kept):
    packages = build(scan(fill(tmp_path / "work", {"m.py": ""})), kept)
    assert packages.assets is None
    assert json.loads(contents(packages.code)[ASSETS_FILE])["hash"] == ""
    (tmp_path / "empty").mkdir()
    assert list(contents(build(scan(tmp_path / "empty"), kept).code)) == [ASSETS_FILE]


def test_above_rays_limit_the_biggest_files_are_named(tmp_path, kept):
    root = fill(tmp_path / "work", {"m.py": "", "small.bin": "s"})
    for name, size in (("weights.bin", 70), ("more.bin", 40)):
        (root / name).write_bytes(os.urandom(size << 20))
    with pytest.raises(WorkspaceError) as caught:
        build(scan(root), kept)
    assert "100.0 MiB" in caught.value.message
    assert "weights.bin (70.0 MiB), more.bin (40.0 MiB)" in caught.value.message
    for way_out in (".llmopsignore", "absolute path", "s3://"):
        assert way_out in caught.value.remedy
    assert [path for path in kept.iterdir() if path.suffix != ".zip"] == []


def test_what_compresses_well_may_be_larger_than_the_limit(tmp_path, kept):
    root = fill(tmp_path / "work", {"m.py": ""})
    (root / "rows.jsonl").write_bytes(b'{"text": "the same"}\n' * (MAX_UPLOAD_BYTES // 20))
    assert scan(root).size_bytes > MAX_UPLOAD_BYTES
    assert build(scan(root), kept).assets.size_bytes < MAX_UPLOAD_BYTES / 10


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_file_that_changes_meanwhile_poisons_no_package(root, kept, change):
    snapshot = scan(root)
    (root / "hooks.py").unlink()
    if change == "edit":
        (root / "hooks.py").write_text("changed\n")
    with pytest.raises(WorkspaceError, match=r"hooks.py changed while"):
        build(snapshot, kept)
    (root / "hooks.py").write_text(FILES["hooks.py"])
    assert contents(build(snapshot, kept).code)["hooks.py"].decode() == FILES["hooks.py"]


def test_a_second_submission_is_fast(root, kept):
    for number in range(300):
        fill(root, {f"pkg/m{number}.py": f"x = {number}\n"})
    build(scan(root), kept)
    (root / "hooks.py").write_text("def format_example(row): return 2\n")
    begin = time.process_time()
    build(scan(root), kept)
    assert time.process_time() - begin < 1


@pytest.fixture(scope="module")
def shared_packages(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-c]{1,2}(/[a-c]{1,2})?\.(py|txt|bin)", fullmatch=True),
        st.binary(max_size=40),
        max_size=8,
    )
)
def test_every_file_arrives_once_with_its_content(tmp_path_factory, shared_packages, files):
    root = tmp_path_factory.mktemp("work")
    for rel, data in files.items():
        (root / rel).parent.mkdir(parents=True, exist_ok=True)
        (root / rel).write_bytes(data)
    snapshot = scan(root)
    code, assets = split(snapshot)
    assert sorted([*code, *assets]) == sorted(files)
    packages = build(snapshot, shared_packages)
    arrived = contents(packages.code)
    del arrived[ASSETS_FILE]
    if packages.assets:
        parts = contents(packages.assets).items()
        arrived |= {name.partition("/")[2]: data for name, data in parts}
    assert arrived == files


def unpack(package: Package, place: Path) -> Path:
    with zipfile.ZipFile(package.path) as archive:
        archive.extractall(place)
    return place


def test_on_the_worker_the_workspace_looks_as_at_home(root, kept, tmp_path):
    packages = build(scan(root), kept)
    code = unpack(packages.code, tmp_path / "node" / "code")
    search = [str(tmp_path), str(unpack(packages.assets, tmp_path / "node" / "assets"))]
    assert sorted(link_assets(code, search=search)) == ["data/notes.txt", "data/train.jsonl"]
    assert {rel: (code / rel).read_text() for rel in FILES} == FILES
    assert link_assets(code, search=search) == []  # The next worker of the node.
    with pytest.raises(WorkspaceError, match="not on this node"):
        link_assets(code, search=[str(tmp_path)])


def test_no_data_nothing_to_link(tmp_path, kept):
    packages = build(scan(fill(tmp_path / "work", {"m.py": ""})), kept)
    assert link_assets(unpack(packages.code, tmp_path / "code")) == []
    assert link_assets(tmp_path) == []


def test_the_library_package_works_alone(root, kept, tmp_path):
    place = unpack(build(scan(root), kept).library, tmp_path / "lib")
    code = "import llmops_kernel.store.journal.journal as j; print(j.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(place))
