"""No test touches the user's runs, clusters or models; tests that use Ray run one after another."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import ClusterInfo
    from llmops_kernel.store.store import RunStore

CACHE_VARIABLE = "LLMOPS_TEST_CACHE"
"""A folder that keeps converted models and compiled ops between test sessions."""
_HOME = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    # A machine shared with others is no fault of an example; all else stays as it is chosen.
    hypothesis.settings.register_profile("ours", hypothesis.settings.default, deadline=None)
    hypothesis.settings.load_profile("ours")
    # A session under nohup or in a shell's background is started with both ignored, and all that
    # it starts would be too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Short: Ray's socket paths below it must not exceed 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="llmops-t-"))
    config.stash[_HOME] = folder
    _find_score_env()
    os.environ["LLMOPS_HOME"] = str(folder / "home")
    # Processes of pytest-xdist share the folder of the process that started them.
    if CACHE_VARIABLE not in os.environ:
        os.environ[CACHE_VARIABLE] = str(folder / "cache")
    os.environ["LLMOPS_CACHE"] = os.environ[CACHE_VARIABLE]
    # Whoever runs the tests may have clusters of their own.
    os.environ["KUBECONFIG"] = str(folder / "no-kubeconfig")
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("RAY_ADDRESS", None)


def _find_score_env() -> None:
    """Let tests use vLLM's environment in the user's own cache, where `make score-env` makes it."""
    from llmops_kernel import score_env

    if score_env.ready():
        os.environ[score_env.ENV_VAR] = str(score_env.path())


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_HOME, None)
    if folder is None:
        return
    _stop_clusters(folder / "home")
    shutil.rmtree(folder, ignore_errors=True)


def _stop_clusters(home: Path) -> None:
    """Stop clusters that an interrupted test left, in the home folder of this session only."""
    if not home.exists():
        return
    from llmops_kernel.providers.local.provider import LocalProvider

    provider = LocalProvider(home)
    for info in provider.list():
        provider.down(info.name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this test alone, which has a cache of its own too."""
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A store of runs in a home that is empty."""
    from llmops_kernel.store.store import RunStore

    return RunStore(tmp_path / "home")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[ClusterInfo]:
    """A READY local cluster `test` for tests that only use it; started at first need."""
    from llmops_kernel.config.models.cluster import ClusterTemplate
    from llmops_kernel.providers.local.provider import LocalProvider
    from tests.costs import PRICE

    provider = LocalProvider()
    yield provider.up(ClusterTemplate(name="test", price=PRICE), progress=print)
    provider.down("test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests without Ray first, so that a broken import fails at once.

    With several processes (pytest-xdist) those that use Ray stay together (tests/groups.py). They
    take longest, so they come first.
    """
    is_distributed = hasattr(config, "workerinput")  # Set by xdist in its processes.
    items.sort(key=lambda item: _uses_ray(item) != is_distributed)
    _leave_cases_to_the_night(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whatever `--dist` says."""
    from tests.groups import ByFile

    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    from tests.fuzz.report import lines_of, reported

    for line in lines_of(reported(terminalreporter.stats)):
        terminalreporter.write_line(line)


def _leave_cases_to_the_night(items: list[pytest.Item]) -> None:
    """Of a slow test with more than three cases, CI runs the first, the middle and the last one."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("beside") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in cases.values():
        chosen = {0, len(alike) // 2, len(alike) - 1}
        for number, item in enumerate(alike):
            if len(alike) > 3 and number not in chosen:
                item.add_marker("nightly")


def _uses_ray(item: pytest.Item) -> bool:
    return item.get_closest_marker("ray") is not None
