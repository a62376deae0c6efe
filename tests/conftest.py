"""No test touches the user's runs, clusters or models; Ray tests come last and together."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llmops_kernel.clusters.provider import ClusterInfo

CACHE_VARIABLE = "LLMOPS_TEST_CACHE"
"""A folder that keeps converted models and compiled ops between test sessions."""
_HOME = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    # A session under nohup or in a shell's background is started with both ignored, and all that
    # it starts would be too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Short: Ray's socket paths below it must not exceed 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="llmops-t-"))
    config.stash[_HOME] = folder
    os.environ["LLMOPS_HOME"] = str(folder / "home")
    os.environ["LLMOPS_CACHE"] = os.environ.get(CACHE_VARIABLE) or str(folder / "cache")
    # Whoever runs the tests may have clusters of their own.
    os.environ["KUBECONFIG"] = str(folder / "no-kubeconfig")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("RAY_ADDRESS", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_HOME, None)
    if folder is None:
        return
    _stop_clusters(folder / "home")
    shutil.rmtree(folder, ignore_errors=True)


def _stop_clusters(home: Path) -> None:
    """Of the session's own home only; a test that was interrupted may have left one."""
    if not home.exists():
        return
    from llmops_kernel.clusters.local import LocalProvider

    provider = LocalProvider(home)
    for info in provider.list():
        provider.down(info.name)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[ClusterInfo]:
    """A READY local cluster `test` for tests that only use it; started at first need."""
    from llmops_kernel.clusters.local import LocalProvider
    from llmops_kernel.config.cluster import ClusterTemplate

    provider = LocalProvider()
    yield provider.up(ClusterTemplate(name="test"), progress=print)
    provider.down("test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, so that a broken import shows at once."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is not None)
