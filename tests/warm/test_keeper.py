"""When the keeper takes a server for hung, and what it compiles in advance."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from llmops_kernel.warm.keeper import PREPARE, PREPARE_CODE
from tests.waiting import until
from tests.warm.conftest import Node

STUB = """
import sys, time
if "--preload" not in sys.orig_argv and "llmops_kernel.warm.server" not in sys.orig_argv:
    time.sleep(60)
"""


def test_what_it_compiles_with_is_where_it_looks() -> None:
    found = find_spec(PREPARE)
    assert found is not None
    assert Path(str(found.origin)) == PREPARE_CODE


def test_it_is_not_begun_while_a_run_is_active(own_node: Node, tmp_path: Path) -> None:
    """A run that needs it compiles for itself; another one lost a third of the cores to it."""
    (tmp_path / "deepspeed.py").write_text(STUB)
    own_node.start("deepspeed", path=str(tmp_path))
    own_node.ready()
    assert own_node.keeper is not None
    keeper = psutil.Process(own_node.keeper.pid)
    run = own_node.popen("-c", "print(1, flush=True); input()", stdin=subprocess.PIPE)
    assert run.stdout is not None
    run.stdout.readline()
    assert own_node.status()["drivers"] == 1  # type: ignore[index]
    time.sleep(7)  # The keeper looks each 5 s.
    assert not [one for one in keeper.children() if PREPARE in one.cmdline()]
    run.communicate(b"\n", timeout=40)
    found = until(lambda: [one for one in keeper.children() if PREPARE in one.cmdline()])
    found[0].kill()


def test_the_compilation_disturbs_nobody(own_node: Node, tmp_path: Path) -> None:
    (tmp_path / "deepspeed.py").write_text(STUB)
    own_node.start("deepspeed", path=str(tmp_path))
    own_node.ready()
    assert own_node.keeper is not None
    keeper = psutil.Process(own_node.keeper.pid)

    def compiling() -> psutil.Process | None:
        found = [one for one in keeper.children() if PREPARE in one.cmdline()]
        return found[0] if found else None

    process = until(compiling)
    try:
        until(lambda: os.sched_getscheduler(process.pid) == os.SCHED_IDLE)
        assert os.getsid(process.pid) == process.pid != os.getsid(keeper.pid)
    finally:
        process.kill()


KEEPER = """
import sys
from pathlib import Path
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.keeper import Keeper
from llmops_kernel.warm.progress import Limits
folder, module, stalled_s, start_cpu_s, answer_s, answer_cpu_s = sys.argv[1:]
Keeper(
    folder=WarmFolder(Path(folder)),
    modules=[module],
    limits=Limits(
        stalled_s=float(stalled_s),
        start_cpu_s=float(start_cpu_s),
        answer_s=float(answer_s),
        answer_cpu_s=float(answer_cpu_s),
    ),
).run()
"""
BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
Keep = Callable[..., Node]


@pytest.fixture
def keep(own_node: Node, tmp_path: Path) -> Iterator[Keep]:
    """A keeper with short limits whose server imports a module of this source."""

    def start(source: str, *limits: float) -> Node:
        (tmp_path / "preloaded.py").write_text(source)
        line = [own_node.python, "-c", KEEPER, str(own_node.folder.root), "preloaded"]
        own_node.keeper = subprocess.Popen(
            [*line, *map(str, limits)],
            env=own_node.env(PYTHONPATH=str(tmp_path)),
            start_new_session=True,
        )
        return own_node

    return start


def test_a_server_that_is_slow_is_not_started_again(keep: Keep) -> None:
    """On a busy machine it took longer than a fixed limit, and was killed for ever."""
    node = keep(BUSY.format(seconds=5), 1.0, 60.0, 10.0, 60.0).ready(timeout_s=120)
    took_s = node.events("ready")[-1]["took_s"]
    assert took_s > 4.0 > 1.0
    assert node.events("died") == []


def test_the_work_of_a_child_is_progress(keep: Keep) -> None:
    """An import may wait for a compiler, for example."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    node = keep(child.format(seconds=5), 1.5, 60.0, 10.0, 60.0).ready(timeout_s=120)
    assert node.events("died") == []


def failed(node: Node) -> str:
    def reason() -> str:
        state = node.folder.read_state() or {}
        return str(state["reason"]) if state.get("state") == "failed" else ""

    return until(reason, timeout_s=120)


def test_a_server_that_hangs_ends_in_failed_with_the_reason(keep: Keep) -> None:
    node = keep("import time\ntime.sleep(600)", 1.0, 60.0, 10.0, 60.0)
    reason = failed(node)
    assert reason.startswith("it was not ready and had not used the processor for")
    assert "(3 times in succession; next try in 60 s; log: " in reason
    assert len(node.events("died")) == 3
    began_s = time.monotonic()
    assert node.reported().startswith("cold: the fork server cannot start: it was not ready")
    assert time.monotonic() - began_s < 10  # Without waiting for it.


def test_one_that_imports_without_an_end_too(keep: Keep) -> None:
    reason = failed(keep("while True: pass", 60.0, 0.2, 10.0, 60.0))
    assert reason.startswith("it was not ready after ")
    assert "s of processor time (3 times" in reason


def test_other_packages_end_the_pause(keep: Keep, changeable: Path) -> None:
    source = "import os\ntry:\n    import only_then\nexcept ImportError:\n    os._exit(3)"
    node = keep(source, 60.0, 60.0, 10.0, 60.0)
    assert failed(node).startswith("exit code 3 (3 times in succession")
    (changeable / "only_then.py").touch()
    node.ready(timeout_s=40)


def test_a_ready_server_that_waits_for_the_processor_is_left_alone(keep: Keep) -> None:
    """It answers nothing for longer than the limit, but makes progress."""
    source = (
        "import signal, time\n"
        "def busy(*_):\n"
        "    end = time.process_time() + 4\n"
        "    while time.process_time() < end: pass\n"
        "signal.signal(signal.SIGUSR1, busy)\n"
    )
    node = keep(source, 60.0, 60.0, 1.0, 30.0).ready()
    old_pid = node.server_pid
    os.kill(old_pid, signal.SIGUSR1)
    until(lambda: sum(psutil.Process(old_pid).cpu_times()[:2]) > 4, timeout_s=60)
    time.sleep(8)  # The keeper asks each 5 s.
    assert node.server_pid == old_pid
    assert node.events("died") == []
