"""What a user does to the runs of the own local cluster, and what happens to them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.soak.user import TRAIN, Expected, User

ENDED = {"SUCCEEDED", "FAILED", "STOPPED"}
_FILL_S = 2.0


def ready(user: User) -> bool:
    """Bring the cluster up; one that is up is attached to."""
    return user.llmops("up").returncode == 0


def submit(user: User) -> None:
    """A short run that nobody disturbs."""
    mark = user.new_mark()
    steps, pause_s = user.random.randint(3, 12), user.random.choice([0.0, 0.05, 0.2])
    user.llmops(*user.submit(steps=steps, pause_s=pause_s, mark=mark))


def train(user: User) -> None:
    mark, steps = user.new_mark(), user.random.randint(2, 4)
    (user.work / f"{mark}.train.yaml").write_text(TRAIN.format(name=mark, steps=steps))
    # It writes no truth: its steps are known from its config.
    user.runs[mark] = Expected(mark, user.truth / mark, steps, saves_a_result=True)
    user.llmops("submit", str(user.work / f"{mark}.train.yaml"))
    (user.work / f"{mark}.train.yaml").unlink()


def stop(user: User) -> None:
    run = _long(user, {"STOPPED"})
    if run is not None:
        user.llmops("stop", "last")


def kill_run(user: User) -> None:
    """Kill -9 of the script's process, or of the one that started it."""
    run = _long(user, {"FAILED"})
    if run is None:
        return
    with suppress(psutil.Error):
        process = psutil.Process(run.pids[-1])
        parent = process.parent()
        drivers = "llmops_kernel.train" in " ".join(parent.cmdline() if parent else [])
        chosen = parent if drivers and user.random.random() < 0.5 else process
        assert chosen is not None
        chosen.kill()


def kill_client(user: User) -> None:
    """Kill -9 of `llmops submit --follow` at any moment: there is a whole run or none."""
    mark = user.new_mark()
    words = user.submit(steps=8, pause_s=0.1, mark=mark, may_be_missing=True)
    process = user.start("llmops_kernel", words[0], words[1], "--follow", *words[2:])
    time.sleep(user.random.uniform(0.2, 4.0))
    _kill_group(process.pid)
    process.communicate()


def kill_head(user: User) -> None:
    """Kill -9 of a process without which Ray does not live, under a run."""
    run = _long(user, {"FAILED", "STOPPED"})
    if run is None:
        return
    for other in _active(user):
        other.states |= {"FAILED", "STOPPED"}
    name = user.random.choice(["gcs_server", "raylet"])
    for process in psutil.process_iter(["name", "uids"]):
        with suppress(psutil.Error):
            if process.info["name"] == name and process.info["uids"].real == user.uid:
                process.kill()
    user.until(lambda: user.llmops("status", may_fail=True).returncode != 0, 90)
    # A command of its own stops what is left of the dead one.
    user.llmops("down", may_fail=True)
    ready(user)


def delete(user: User) -> None:
    """Delete a run that has ended; a deletion that is killed is finished by the next one."""
    ended = [run for run in user.runs.values() if run.checksum and not run.is_deleted]
    if not ended:
        submit(user)
        return
    run = user.random.choice(ended)
    run.is_deleted = True
    ref = user.ids[run.mark]
    if user.random.random() < 0.4:
        process = user.start("llmops_kernel", "rm", ref, "--yes")
        time.sleep(user.random.uniform(0.3, 1.5))
        _kill_group(process.pid)
        process.communicate()
        user.llmops("rm", ref, "--yes", may_fail=True)
        user.llmops("gc")
    else:
        user.llmops("rm", ref, "--yes")


def full_disk(user: User) -> None:
    """A run goes on while the disk takes nothing for two seconds; a submit then says so."""
    run = _long(user, {"SUCCEEDED"}, steps=60)
    if run is None:
        return
    for other in _active(user):
        other.states |= {"FAILED"} if other.saves_a_result else set()
    ballast = user.home / "disk" / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(512))
    began_s = time.monotonic()
    try:
        mark = user.new_mark()
        words = user.submit(steps=3, pause_s=0.0, mark=mark, may_be_missing=True)
        user.runs[mark].states |= {"FAILED"}
        user.llmops(*words, may_fail=True)
        user.llmops("runs", may_fail=True)
        time.sleep(max(0.0, _FILL_S - (time.monotonic() - began_s)))
    finally:
        ballast.unlink()
        # If it ended before there was space, what waited in memory had nowhere to go.
        run.may_lose_lines = len(run.reported) >= run.steps


def restart(user: User) -> None:
    """`down` and `up`, whatever runs."""
    for run in _active(user):
        run.states |= ENDED
    user.llmops("down")
    ready(user)


def _long(user: User, states: set[str], *, steps: int = 150) -> Expected | None:
    """Submit a run that is still running when it has reported steps; None if it never did."""
    mark = user.new_mark()
    done = user.llmops(*user.submit(steps=steps, pause_s=0.15, mark=mark))
    run = user.runs[mark]
    if done.returncode:
        run.may_be_missing = True
        return None
    if not user.until(lambda: len(run.reported) >= 2, 180):
        user.broke(f"{mark} reported no step within 180 s: {done.stdout[-300:]}")
        return None
    run.states = set(states)
    return run


def _active(user: User) -> list[Expected]:
    """Runs that were not seen ended at the last check."""
    return [run for run in user.runs.values() if not run.checksum and not run.is_deleted]


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


ACTIONS: dict[str, tuple[int, Callable[[User], None]]] = {
    "submit": (30, submit),
    "train": (3, train),
    "stop": (10, stop),
    "kill run": (8, kill_run),
    "kill client": (8, kill_client),
    "kill head": (2, kill_head),
    "delete": (12, delete),
    "full disk": (5, full_disk),
    "restart": (2, restart),
}
