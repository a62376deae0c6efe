"""A forked interpreter against the plain one: the same program has to end and say the same."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.warm.conftest import Node
from tests.warm.programs import programs

PROGRAMS = programs()


def outcome(done: subprocess.CompletedProcess[bytes]) -> dict[str, object]:
    return {"code": done.returncode, "out": done.stdout.decode(), "err": done.stderr.decode()}


def both(
    node: Node, *arguments: object, feed: bytes | None = None, **options: Any
) -> dict[str, object]:
    """The outcome, which is the same for both; only warm ones may have been warm."""
    before = len(node.reasons())
    warm = outcome(node.run(*arguments, feed=feed, **options))
    assert node.reasons()[before:] == []
    plain = outcome(node.run(*arguments, feed=feed, warm=False, **options))
    assert warm == plain
    return warm


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_ends_and_speaks_as_with_the_plain_interpreter(
    node: Node, tmp_path: Path, name: str
) -> None:
    (tmp_path / "script.py").write_text(PROGRAMS[name])
    both(node, "script.py", "a", "b c", cwd=tmp_path)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("flag", [(), ("-u",)])
def test_words_come_in_the_same_order(
    node: Node, tmp_path: Path, unbuffered: str, flag: tuple[str, ...]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAMS["order"])
    env = node.env(PYTHONUNBUFFERED=unbuffered)
    texts = []
    for warm in (True, False):
        process = node.popen(*flag, script, env=env, stderr=subprocess.STDOUT, warm=warm)
        texts.append((process.communicate(timeout=30)[0], process.returncode))
    assert texts[0] == texts[1]


CIRCUMSTANCES = """
import gc, json, os, resource, signal, sys, threading
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
kept = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Threads", "Cpus_allowed", "Uid", "NoNewPrivs")
env = {k: v for k, v in os.environ.items() if not k.startswith("LLMOPS_WARM")}
print(json.dumps({
    "status": {name: status[name].strip() for name in kept},
    "argv": sys.argv, "file": globals().get("__file__"), "name": __name__,
    "package": __package__, "path": sys.path, "cwd": os.getcwd(), "env": env,
    "spec": __spec__ and [__spec__.name, __spec__.origin], "nice": os.nice(0),
    "score": open("/proc/self/oom_score_adj").read(),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource)
               if n.startswith("RLIMIT_")},
    "stdin": sys.stdin.read(),
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")),
    "active": threading.active_count(), "main": threading.current_thread().name,
    "interpreter": [sys.prefix, sys.executable, sys.flags.isolated, sys.dont_write_bytecode],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "garbage": gc.isenabled(),
}, default=str))
"""


def circumstances(text: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(text))
    # The listing itself opens one, and the fork has the control channel.
    # Signals 32 and 33 are glibc's own, caught once a library has started a thread.
    caught = int(found["status"].pop("SigCgt"), 16)
    found["status"]["caught"] = caught & (1 << 31) - 1
    found["fds"] = [fd for fd in found["fds"] if fd < 3]
    return found


def both_circumstances(
    node: Node, *arguments: object, feed: bytes = b"", **options: Any
) -> dict[str, Any]:
    before = len(node.reasons())
    found = []
    for warm in (True, False):
        done = node.run(*arguments, feed=feed, warm=warm, **options)
        assert done.returncode == 0, done.stderr.decode()
        found.append(circumstances(done.stdout.decode()))
    assert node.reasons()[before:] == []
    assert found[0] == found[1]
    return found[0]


def test_a_script_finds_the_same_circumstances(node: Node, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "script.py").write_text(CIRCUMSTANCES)
    seen = both_circumstances(
        node, "a folder/script.py", "--x", "y z", "", feed=b"in\nput", cwd=tmp_path
    )
    assert seen["path"][0] == str(folder)
    assert seen["stdin"] == "in\nput"


def test_a_link_to_a_script_has_the_path_of_the_script(node: Node, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/script.py").write_text(CIRCUMSTANCES)
    (tmp_path / "link.py").symlink_to(tmp_path / "real/script.py")
    both_circumstances(node, "link.py", cwd=tmp_path)


def test_a_module_finds_the_same_circumstances(node: Node, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("")
    (tmp_path / "pack/mod.py").write_text(CIRCUMSTANCES)
    (tmp_path / "pack/__main__.py").write_text(CIRCUMSTANCES)
    both_circumstances(node, "-m", "pack.mod", "one", cwd=tmp_path)
    both_circumstances(node, "-m", "pack", "one", "-m", cwd=tmp_path)
    both(node, "-m", "pack.none", cwd=tmp_path)
    both(node, "-m", "nowhere", cwd=tmp_path)


def test_a_command_finds_the_same_circumstances(node: Node, tmp_path: Path) -> None:
    both_circumstances(node, "-c", CIRCUMSTANCES, "one", "-c", cwd=tmp_path)
    both(node, "-c", "1/0", cwd=tmp_path)


def test_environment_and_search_path_are_the_callers(node: Node, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "script.py").write_text(CIRCUMSTANCES)
    env = node.env(
        PYTHONPATH=f"lib:{tmp_path}/none/../x:lib:", WITH_NEWLINE="a\nb", UNICODE="ä", EMPTY=""
    )
    seen = both_circumstances(node, "script.py", cwd=tmp_path, env=env)
    assert str(tmp_path / "lib") in seen["path"]


def _unlike() -> None:
    """In the process that then becomes the interpreter."""
    os.umask(0o027)
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, 900))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    Path("/proc/self/oom_score_adj").write_text("321")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGWINCH, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTTOU])


def test_limits_signals_and_priorities_are_the_callers(node: Node, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CIRCUMSTANCES)
    seen = both_circumstances(node, "script.py", cwd=tmp_path, preexec_fn=_unlike)
    assert seen["status"]["Umask"] == "0027"
    assert seen["nice"] == min(19, os.nice(0) + 5)
    assert seen["limits"]["RLIMIT_NOFILE"] == [700, 900]
    assert seen["score"].strip() == "321"
    assert signal.SIGUSR1 in seen["blocked"]


def test_only_the_control_channel_is_open_besides_the_standard_ones(
    node: Node, tmp_path: Path
) -> None:
    waiting = [node.popen("-c", "import time; time.sleep(60)") for _ in range(3)]
    until(lambda: (node.status() or {}).get("children", 0) >= 3)
    code = (
        "import os\nfor n in os.listdir('/proc/self/fd'):\n"
        "  try: print(n, os.readlink('/proc/self/fd/' + n))\n  except OSError: pass"
    )
    lines = node.run("-c", code).stdout.decode().splitlines()
    extra = [line for line in lines if int(line.split()[0]) > 2]
    assert [line.split(":")[0] for line in extra] == ["100 socket"]
    for process in waiting:
        process.kill()


def test_standard_streams_end_when_the_program_closes_them(node: Node) -> None:
    process = node.popen("-c", "import os, time; os.close(1); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.read() == b""
    assert process.poll() is None
    process.kill()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_as_before(node: Node, tmp_path: Path, method: str) -> None:
    (tmp_path / "script.py").write_text(
        "import multiprocessing as m, os, sys\n"
        "def f(x):\n    return x * x, __name__, os.path.basename(__file__)\n"
        "if __name__ == '__main__':\n"
        f"    with m.get_context({method!r}).Pool(2) as pool:\n"
        "        print(sorted(pool.map(f, range(4))))\n"
    )
    seen = both(node, "script.py", cwd=tmp_path)
    assert seen["code"] == 0, seen["err"]
    (tmp_path / "pack").mkdir()
    (tmp_path / "script.py").rename(tmp_path / "pack/job.py")
    assert both(node, "-m", "pack.job", cwd=tmp_path)["code"] == 0


def test_random_numbers_differ_between_two_children(node: Node) -> None:
    code = (
        "import random, uuid, secrets, tempfile, multiprocessing, numpy\n"
        "print(random.random(), numpy.random.rand(), numpy.random.default_rng().random(),"
        "uuid.uuid4(), secrets.token_hex(), tempfile.mktemp(),"
        "multiprocessing.current_process().authkey.hex())"
    )
    first, second = (node.run("-c", code).stdout.split() for _ in range(2))
    assert len(first) == 7
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_temporary_files_go_where_the_job_wants_them(node: Node, tmp_path: Path) -> None:
    code = "import tempfile; print(tempfile.gettempdir())"
    both(node, "-c", code, env=node.env(TMPDIR=str(tmp_path)))


def test_the_process_says_that_it_is_warm_and_what_it_runs(node: Node, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import os, psutil\nprint(os.environ['LLMOPS_WARM'])\nprint(psutil.Process().cmdline())"
    )
    reported, line = node.run("s.py", "argument", cwd=tmp_path).stdout.decode().splitlines()
    assert reported == "warm"
    assert line == str([sys.executable, "s.py", "argument"])


def test_ctrl_c_reaches_the_program(node: Node) -> None:
    code = "import time; print('up', flush=True); time.sleep(60)"
    found = []
    for warm in (True, False):
        process = node.popen("-c", code, warm=warm)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        found.append((process.wait(40), process.stderr.read().decode()))
    assert found[0] == found[1]
    assert "KeyboardInterrupt" in found[0][1]
