"""DeepSpeed's operations are compiled once, also after a compilation was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmops_kernel.hardware.priority import give_idle_time, has_idle_time
from llmops_kernel.store.compiled_ops import compiling_since_s
from llmops_kernel.train.deepspeed_ops import needed
from tests.configs import training_config_from_dict
from tests.hardware.test_priority import account

COMPILE_FOR_A_RUN = """
import sys
from contextlib import closing
from pathlib import Path
from llmops_kernel.kinds.reading import load
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.deepspeed_ops import compile_for
folder = Path(sys.argv[1])
parallelism = {"strategy": "zero2", "num_workers": 1}
config = load({"model": "tiny-llama", "data": "rows.jsonl", "parallelism": parallelism}, ())
with closing(JournalWriter([folder], stream=sys.argv[2], attempt=1)) as journal:
    compile_for(
        config, WorkerContext(run_id="run-1", folder=folder, workspace=folder, journal=journal)
    )
"""
HOLD = """
import sys
from pathlib import Path
from filelock import FileLock
from llmops_kernel.store.compiled_ops import lock_file, marked
folder = Path(sys.argv[1])
with FileLock(str(lock_file(folder))), marked(folder):
    print("held", flush=True)
    sys.stdin.read()
"""
LOCK_WITHOUT_RIGHTS = """
import ctypes, sys
from pathlib import Path
from llmops_kernel.train.deepspeed_ops import _locked
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
assert libc.capget(header, data) == 0
data[0] &= ~(1 << 23)  # CAP_SYS_NICE
assert libc.capset(header, data) == 0
with _locked(Path(sys.argv[1])):
    print("locked", flush=True)
"""
COMPILE = (
    "import sys, pathlib\n"
    "from llmops_kernel.train.deepspeed_ops import compile_ops\n"
    "compile_ops(('ShareMemCommBuilder',), root=pathlib.Path(sys.argv[1]))"
)


@pytest.mark.parametrize(
    ("parallelism", "use_gpu", "count"),
    [
        ({"strategy": "ddp"}, False, 0),
        ({"strategy": "zero2"}, False, 1),
        ({"strategy": "zero2"}, True, 0),
        ({"strategy": "zero3", "offload_optimizer": True}, False, 2),
        ({"strategy": "zero3", "offload_optimizer": True}, True, 1),
        ({"strategy": "zero3", "offload_optimizer": "nvme", "nvme_path": "/d"}, True, 2),
    ],
)
def test_only_what_the_training_will_ask_for(parallelism, use_gpu: bool, count: int) -> None:
    data = {"model": "tiny-llama", "data": "rows.jsonl", "parallelism": parallelism}
    assert len(needed(training_config_from_dict(data), use_gpu=use_gpu)) == count


def _wait_for_release(cache: Path, seconds: float = 30.0) -> None:
    """The compiler's processes hold the lock as well, and end a moment after the first one."""
    deadline_s = time.monotonic() + seconds
    while compiling_since_s(folder=cache) is not None and time.monotonic() < deadline_s:
        time.sleep(0.05)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    # A session of its own: the compiler dies with its parent, as on a cluster that is stopped.
    env = {key: value for key, value in os.environ.items() if key != "TORCH_EXTENSIONS_DIR"}
    command = [sys.executable, "-c", COMPILE, str(folder)]
    return subprocess.Popen(command, start_new_session=True, env=env)


def _holder(cache: Path) -> subprocess.Popen[bytes]:
    """A compilation in advance, which holds the lock."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    give_idle_time(holder.pid)
    assert has_idle_time(holder.pid)
    return holder


@pytest.mark.skipif(os.getuid() != 0, reason="only root may take a process out of SCHED_IDLE")
def test_who_waits_for_a_compilation_gives_it_its_share(tmp_path: Path) -> None:
    """One in advance has the lowest: beside other work, a run waited for it for ten minutes."""
    with _holder(tmp_path) as holder:
        waiting = _start(tmp_path)
        deadline_s = time.monotonic() + 120
        while has_idle_time(holder.pid) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        os.killpg(waiting.pid, signal.SIGKILL)
        waiting.wait()
        assert not has_idle_time(holder.pid)
        if groups := account(holder.pid)[1]:
            assert groups == "0"
        holder.communicate(b"")


@pytest.mark.skipif(os.getuid() != 0, reason="gives up being root")
def test_who_may_not_give_it_its_share_compiles_in_its_place(tmp_path: Path) -> None:
    """An ordinary user cannot take a process out of SCHED_IDLE: a run waited behind it."""
    with _holder(tmp_path) as holder:
        waiting = subprocess.Popen(
            [sys.executable, "-c", LOCK_WITHOUT_RIGHTS, str(tmp_path)], stdout=subprocess.PIPE
        )
        out, _ = waiting.communicate(timeout=120)
        assert out == b"locked\n"
        assert holder.wait(10) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.beside
def test_a_killed_compilation_does_not_block_the_next_which_is_a_phase_of_its_run(
    tmp_path: Path,
) -> None:
    """And of no other run: a later one finds the operation compiled."""
    cache = tmp_path / "extensions"
    killed = _start(cache)
    deadline_s = time.monotonic() + 120
    while not list(cache.glob("*/lock")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    marked_s = compiling_since_s(folder=cache)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert marked_s
    _wait_for_release(cache)
    assert compiling_since_s(folder=cache) is None
    assert list(cache.glob("*/lock"))
    assert not list(cache.glob("*/*.so"))

    env = os.environ | {"TORCH_EXTENSIONS_DIR": str(cache)}

    def start(stream: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", COMPILE_FOR_A_RUN, str(tmp_path), stream]
        return subprocess.Popen(command, env=env)

    first = start("first")
    seen: list[float] = []
    while first.poll() is None:
        seen += filter(None, [compiling_since_s(folder=cache)])
        time.sleep(0.2)
    assert first.returncode == 0
    # For a moment the lock is held and the mark is still that of the killed one.
    assert len(set(seen) - {marked_s}) == 1
    assert compiling_since_s(folder=cache) is None
    assert list(cache.glob("*/*.so"))
    assert not list(cache.glob("*/lock"))
    assert start("second").wait(timeout=300) == 0
    texts = [(tmp_path / f"{stream}.jsonl") for stream in ("first", "second")]
    lines = [path.read_text() if path.exists() else "" for path in texts]
    assert [line.count('"name":"compile"') for line in lines] == [2, 0]
