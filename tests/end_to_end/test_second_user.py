"""Another user of the machine reads nothing of a home: tried with a second user id."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# As somebody with the usual umask, whatever the tests' own is.
_MAKE = """
import os, sys
from pathlib import Path
os.umask(0o022)
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.package.packages import build
from llmops_kernel.store.package.workspace import scan
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

store = RunStore()
first = sys.argv[2]
if first == "cluster":
    cluster_folder(store.root, "lab").create()
if first == "list":
    store.ids()
build(scan(sys.argv[1]), store.packages)
record = RunRecord(run_id="toy-1", name="toy", created_s=1.0, cluster="lab", config={"a": "secret"})
folder = store.create(record, config_yaml="a: secret")
writer = JournalWriter([folder.journal], stream="1-client", attempt=1)
writer.emit(EndEvent(state="SUCCEEDED"))
writer.close()
print(store.root)
"""
# Prints each file below a folder that its user can read.
_READ = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        try:
            open(os.path.join(folder, name), "rb").close()
        except OSError:
            continue
        print(os.path.join(folder, name))
"""


@pytest.fixture
def anywhere() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="llmops-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def run(code: str, *arguments: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make(folder: Path, first: str, **env: str) -> Path:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text("print('mine')")
    return Path(run(_MAKE, str(code), first, **env))


@pytest.mark.parametrize("first", ["cluster", "list", "run"])
def test_another_user_reads_nothing_of_a_new_home(anywhere: Path, first: str) -> None:
    home = make(anywhere, first, LLMOPS_HOME=str(anywhere / "data" / "llmops"))
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "runs.sqlite").exists()
    assert list(home.glob("packages/*.zip"))
    if os.geteuid() == 0:  # Only root can become somebody else.
        seen = run(_READ, str(anywhere)).splitlines()
        assert str(anywhere / "code" / "train.py") in seen
        assert [path for path in seen if path.startswith(str(home))] == []


def test_the_default_home_of_an_earlier_version_is_closed(anywhere: Path) -> None:
    data = anywhere / "share"
    (data / "llmops" / "runs").mkdir(parents=True, mode=0o755)
    (data / "llmops").chmod(0o755)
    home = make(anywhere, "run", XDG_DATA_HOME=str(data), LLMOPS_HOME="")
    assert home == data / "llmops"
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_named_home_that_is_shared_on_purpose_stays_shared(anywhere: Path) -> None:
    shared = anywhere / "team"
    shared.mkdir()
    shared.chmod(0o770)
    home = make(anywhere, "run", LLMOPS_HOME=str(shared))
    assert home.stat().st_mode & 0o777 == 0o770
