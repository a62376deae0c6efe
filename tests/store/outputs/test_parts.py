"""Outputs that a run offers in parts, and what a client makes of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import OutputEvent, OutputFile
from llmops_kernel.store import outputs
from llmops_kernel.store.outputs import PROFILE, Copy, only_on_cluster, target_of, to_copy
from llmops_kernel.store.paths import RunFolder

MIB = 2**20
EMPTY = hashlib.sha256(b"").hexdigest()


def output(folder: Path, **files: int) -> Path:
    folder.mkdir(parents=True)
    for name, size in files.items():
        (folder / name).write_bytes(os.urandom(size))
    return folder


def event(**fields: object) -> OutputEvent:
    return OutputEvent.model_validate({"path": "/pod/output", "what": "adapter", **fields})


def offered(journal: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (journal / outputs.FOLDER).glob("*")}


def test_a_file_is_offered_in_parts_that_only_its_owner_reads(tmp_path: Path) -> None:
    folder = output(tmp_path / "out", weights=9 * MIB, card=7, nothing=0)
    (folder / "link").symlink_to("/etc/hostname")
    found = outputs.offer(folder, journal=tmp_path / "logs/run", limit_bytes=10 * MIB)
    sizes = {file.name: file.size_bytes for file in found}
    assert sizes == {"weights": 9 * MIB, "card": 7, "nothing": 0}
    weights = next(file for file in found if file.name == "weights")
    assert weights.sha256 == hashlib.sha256((folder / "weights").read_bytes()).hexdigest()
    first, second = outputs.part_names(weights)
    here = offered(tmp_path / "logs/run")
    assert (here.pop(first), here.pop(second), list(here.values())) == (8 * MIB, MIB, [7])
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "logs/run/outputs").iterdir()}
    assert modes == {0o600}


@pytest.mark.parametrize("limit", [0, 99])
def test_what_is_larger_than_the_limit_is_not_offered(tmp_path: Path, limit: int) -> None:
    folder = output(tmp_path / "out", weights=100)
    assert outputs.offer(folder, journal=tmp_path / "logs/run", limit_bytes=limit) == ()
    assert not (tmp_path / "logs").exists()


def test_a_node_without_room_keeps_what_was_offered_before(tmp_path: Path) -> None:
    journal = tmp_path / "logs/run"
    outputs.offer(output(tmp_path / "a", one=10), journal=journal, limit_bytes=MIB)
    before = offered(journal)
    broken = output(tmp_path / "b", first=10, second=20)
    (broken / "same").write_bytes((tmp_path / "a/one").read_bytes())
    digest = outputs.file_sha256(broken / "second")
    (journal / outputs.FOLDER / f".{digest}.000").mkdir()  # Cannot be written.
    assert outputs.offer(broken, journal=journal, limit_bytes=MIB) == ()
    (journal / outputs.FOLDER / f".{digest}.000").rmdir()
    assert offered(journal) == before


def test_the_oldest_runs_make_room(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "newer")):
        folder = tmp_path / "logs" / name / outputs.FOLDER
        folder.mkdir(parents=True)
        with (folder / "x.000").open("wb") as file:
            file.truncate(outputs.NODE_BYTES // 2)  # A file with a hole takes no space.
        os.utime(folder, (number, number))
    source = output(tmp_path / "out", weights=10)
    assert outputs.offer(source, journal=tmp_path / "logs/run", limit_bytes=MIB)
    assert not (tmp_path / "logs/old/outputs").exists()
    assert (tmp_path / "logs/newer/outputs/x.000").exists()


@given(size=st.integers(0, 4 * outputs.PART_BYTES))
def test_the_parts_are_the_whole_file(size: int) -> None:
    file = OutputFile(name="a", size_bytes=size, sha256=EMPTY)
    names = outputs.part_names(file)
    sizes = [outputs.part_bytes(file, number) for number in range(len(names))]
    assert sum(sizes) == size
    assert all(0 < one <= outputs.PART_BYTES for one in sizes)
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    ("given_", "limit"),
    [("", 256 * MIB), ("0", 0), ("1024", 1024), ("x", 256 * MIB), (str(2**50), 2**32)],
)
def test_the_limit_comes_from_the_node(
    monkeypatch: pytest.MonkeyPatch, given_: str, limit: int
) -> None:
    monkeypatch.setenv(outputs.COPY_LIMIT_ENV_VAR, given_)
    assert outputs.copy_limit_bytes() == limit


NAMES = st.text(st.sampled_from("ab./\\\0 ~"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES)
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    """A cluster is another party: what it announces is written below the run's folder only."""
    file = OutputFile(name=name, size_bytes=0, sha256=EMPTY)
    try:
        copy = Copy(event(files=[file]), RunFolder(tmp_path / "run"))
    except StoreError:
        return
    below = os.path.normpath(copy.path(file))
    assert below.startswith(f"{tmp_path}/run/.output.1.part/")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sha256": "../x"}, "name"),
        ({"size_bytes": -1}, "name"),
        ({"size_bytes": outputs.MAX_LIMIT_BYTES + 1}, "too large"),
    ],
)
def test_odd_announcements_are_refused(tmp_path: Path, fields: dict[str, object], why: str) -> None:
    file = {"name": "a", "size_bytes": 0, "sha256": EMPTY, **fields}
    with pytest.raises(StoreError, match=why):
        Copy(event(files=[file]), RunFolder(tmp_path))


FILES = [{"name": "a", "size_bytes": 1, "sha256": EMPTY}]
OFFERED = event(place="node", files=FILES)
LARGE = event(place="node", what="model", path="/pod/model")
COPY = event(path="/home/output", copied_from="/pod/output")


@pytest.mark.parametrize(
    ("events", "waiting", "lost"),
    [
        ([], [], []),
        ([event()], [], []),
        ([OFFERED], ["adapter"], ["adapter"]),
        ([OFFERED, COPY], [], []),
        ([LARGE], [], ["model"]),
        ([OFFERED, COPY, LARGE], [], ["model"]),
        # A retry writes the output again: the copy is of the attempt before.
        ([OFFERED, COPY, event(place="node", files=FILES, attempt=2)], ["adapter"], ["adapter"]),
        ([event(place="node", files=FILES, attempt=2), OFFERED], ["adapter"], ["adapter"]),
    ],
)
def test_what_is_to_be_copied_and_what_would_be_lost(
    events: list[OutputEvent], waiting: list[str], lost: list[str]
) -> None:
    assert [one.what for one in to_copy(events)] == waiting
    assert [one.what for one in only_on_cluster(events)] == lost


def test_each_profile_is_copied_beside_the_output_and_not_over_it() -> None:
    profiles = [
        event(what=PROFILE, path=f"/pod/profiles/{name}", place="node", files=FILES)
        for name in ("2-2", "5-7", "5-7", "../..")
    ]
    waiting = to_copy([OFFERED, *profiles])
    folder = RunFolder(Path("/home/r-1"))
    names = [str(target_of(one, folder).relative_to(folder.root)) for one in waiting]
    assert names == ["output", "profiles/2-2", "profiles/5-7", "profiles/other"]


def test_a_copy_of_a_later_attempt_replaces_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / ".output.0.part").mkdir()  # An attempt whose copy was never finished.
    for attempt, data in ((1, b"one"), (2, b"two")):
        file = OutputFile(name="sub/a", size_bytes=3, sha256=hashlib.sha256(data).hexdigest())
        copy = Copy(event(files=[file], attempt=attempt), RunFolder(tmp_path))
        assert copy.begin(file) == 0
        copy.write(file, data, offset=0)
        copy.check(file)
        copy.finish()
        assert (tmp_path / "output/sub/a").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    assert (tmp_path / "output").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "output/sub/a").stat().st_mode & 0o777 == 0o600


def test_a_file_with_another_hash_is_forgotten(tmp_path: Path) -> None:
    file = OutputFile(name="a", size_bytes=3, sha256=hashlib.sha256(b"one").hexdigest())
    copy = Copy(event(files=[file]), RunFolder(tmp_path))
    copy.begin(file)
    copy.write(file, b"two", offset=0)
    with pytest.raises(StoreError, match="SHA-256"):
        copy.check(file)
    assert copy.begin(file) == 0
