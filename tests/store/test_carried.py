"""Our unpacked package goes from one cluster of a host to the next, or not at all."""

from __future__ import annotations

import os
import py_compile
import shlex
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.package.carried import find, hand_over, keep
from llmops_kernel.store.package.packages import Package, library

_UNPACKED = "runtime_resources/py_modules_files"
_COMPILED = f"llmops_kernel/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of a home, with today's library among them."""
    folder = tmp_path_factory.mktemp("packages")
    library(folder)
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def session(folder: Path, package: Package | None = None) -> Path:
    """A session's folder; with a package as Ray unpacks it and Python compiles it."""
    unpacked = folder / _UNPACKED
    unpacked.mkdir(parents=True)
    if package is not None:
        place = unpacked / package.folder
        with zipfile.ZipFile(package.path) as archive:
            archive.extractall(place)
            for info in archive.infolist():
                (place / info.filename).chmod(info.external_attr >> 16 & 0o777)
        (place / _COMPILED).parent.mkdir()
        py_compile.compile(place / "llmops_kernel/__init__.py", place / _COMPILED)
    return folder


def test_it_is_moved_with_what_python_has_compiled(
    packages: Path, kept: Path, tmp_path: Path
) -> None:
    package = library(packages)
    keep(session(tmp_path / "first", package), cache=kept)
    assert not (tmp_path / "first" / _UNPACKED / package.folder).exists()
    assert find(packages, cache=kept) == package
    second = session(tmp_path / "second")
    hand_over(package, cache=kept, session=second)
    assert (second / _UNPACKED / package.folder / _COMPILED).exists()
    # The next cluster, started while this one is up, finds none; neither of them fails.
    assert find(packages, cache=kept) is None
    hand_over(package, cache=kept, session=session(tmp_path / "third"))


def _change(folder: Path) -> None:
    path = folder / "llmops_kernel/errors.py"
    path.write_bytes(path.read_bytes().swapcase())


def _shorten(folder: Path) -> None:
    os.truncate(folder / "llmops_kernel/errors.py", 100)


def _executable(folder: Path) -> None:
    (folder / "llmops_kernel/errors.py").chmod(0o755)


@pytest.mark.parametrize(
    "harm",
    [
        _change,
        _shorten,
        _executable,
        lambda folder: (folder / "llmops_kernel/errors.py").unlink(),
        lambda folder: (folder / "llmops_kernel/added.py").write_text(""),
        lambda folder: (folder / "torch.py").write_text(""),
        lambda folder: (folder / "llmops_kernel/link.py").symlink_to("nowhere"),
        lambda folder: (folder / "llmops_kernel/more").symlink_to("/tmp"),
        lambda folder: os.utime(folder, (0, psutil.boot_time() - 1)),
        lambda folder: folder.rename(folder.with_name("_ray_pkg_0123456789abcdef")),
    ],
    ids=[
        "changed",
        "cut",
        "executable",
        "missing",
        "added",
        "beside",
        "link",
        "link to a folder",
        "before the boot",
        "other version",
    ],
)
def test_anything_else_than_the_package_of_today_is_removed(
    packages: Path, kept: Path, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    package = library(packages)
    first = session(tmp_path / "first", package)
    harm(first / _UNPACKED / package.folder)
    keep(first, cache=kept)
    assert kept.is_dir()
    assert find(packages, cache=kept) is None
    assert not kept.exists()
    assert list(tmp_path.glob(".kept*")) == []


@pytest.mark.parametrize("length", [0, 10, 16, 100])
def test_byte_code_that_was_cut_is_compiled_again(
    packages: Path, kept: Path, tmp_path: Path, length: int
) -> None:
    """As on a full disk: Python fails at each import of such a module."""
    package = library(packages)
    first = session(tmp_path / "first", package)
    os.truncate(first / _UNPACKED / package.folder / _COMPILED, length)
    keep(first, cache=kept)
    assert find(packages, cache=kept) == package
    assert not (kept / package.folder / _COMPILED).exists()


def test_a_link_in_its_place_is_not_followed(packages: Path, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "thesis"
    (other / "chapter").mkdir(parents=True)
    kept.symlink_to(other)
    keep(session(tmp_path / "first", library(packages)), cache=kept)
    assert os.listdir(other) == ["chapter"]


def test_what_an_interrupted_removal_has_left_goes(packages: Path, kept: Path) -> None:
    (kept.parent / f".{kept.name}.01234567" / "llmops_kernel").mkdir(parents=True)
    assert find(packages, cache=kept) is None
    assert os.listdir(kept.parent) == []


def test_only_the_newest_is_kept(packages: Path, kept: Path, tmp_path: Path) -> None:
    package = library(packages)
    (kept / "_ray_pkg_0123456789abcdef" / "llmops_kernel").mkdir(parents=True)
    keep(session(tmp_path / "first", package), cache=kept)
    keep(session(tmp_path / "second", package), cache=kept)  # Of a cluster beside the first.
    assert os.listdir(kept) == [package.folder]
    assert find(packages, cache=kept) == package


def test_a_session_without_one_changes_nothing(kept: Path, tmp_path: Path) -> None:
    keep(session(tmp_path / "first"), cache=kept)
    keep(tmp_path / "never started", cache=kept)
    assert not kept.exists()


@pytest.mark.ray
def test_a_cluster_uses_what_the_one_before_has_unpacked(tmp_path: Path) -> None:
    provider = LocalProvider(tmp_path / "home")
    inodes, logs = [], []
    for _ in range(2):
        try:
            provider.up(ClusterTemplate(name="carried", num_cpus=1))
            package = library(tmp_path / "home" / "packages")
            record = provider._record("carried")
            place = record.session / _UNPACKED / package.folder / "llmops_kernel"
            inodes.append(place.stat().st_ino if place.exists() else None)
            logs.append(_run(provider, package))
            inodes.append(place.stat().st_ino)
        finally:
            provider.down("carried")
    assert inodes[1] == inodes[2] == inodes[3]
    assert all(f"/{package.folder}/llmops_kernel/errors.py" in log for log in logs)


def _run(provider: LocalProvider, package: Package) -> str:
    with JobsClient(provider.connect("carried")) as client:
        client.upload_package(package.path, name=package.name)
        program = "import llmops_kernel.errors as e; print(e.__file__, e.LLMOpsError('x').message)"
        client.submit(
            entrypoint=f"python -c {shlex.quote(program)}",
            submission_id="look-1",
            runtime_env={"py_modules": [package.uri]},
            metadata={},
        )
        deadline = time.monotonic() + 120
        while (job := client.get("look-1")) is None or not job.is_terminal:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return client.driver_log(job)
