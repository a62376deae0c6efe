"""Many submissions on a cluster with room for two: `python -m tests.soak.queue --runs 50`.

Two users submit tiny trainings to a local cluster of its own: Ann most of them first, Bob the
rest, some with high and some with low priority. Some are cancelled while they wait, one is put
first by hand, the head is killed (SIGKILL of Ray's gcs_server) and started again. At the end: none
is lost, none has run twice, and the order in which they began is that of the rules.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.metrics.events import EndEvent, QueueEvent, StepEvent
from llmops_kernel.services import clusters
from llmops_kernel.store.record import Priority
from tests.tiny_training import write_training

STEPS = 5
HOOKS = """
import os, time
from transformers import TrainerCallback

class Gate(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        while state.global_step == 3 and not os.path.exists({gate!r}):
            time.sleep(0.1)

def callbacks():
    return [Gate()]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--cancel", type=int, default=3)
    parser.add_argument("--no-kill", action="store_true", help="leave the head alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-q-") as folder:
        os.environ["LLMOPS_HOME"] = f"{folder}/home"
        template = ClusterTemplate(name="queue", num_cpus=2)
        clusters.up(template, progress=print)
        try:
            return Soak(Path(folder), template, arguments).run()
        finally:
            llmops.down("queue")


class Soak:
    """The runs of one soak, in the order of their submission."""

    def __init__(
        self, folder: Path, template: ClusterTemplate, arguments: argparse.Namespace
    ) -> None:
        self._folder, self._template, self._arguments = folder, template, arguments
        self._runs: list[llmops.Run] = []
        self._users: dict[str, str] = {}
        self._priorities: dict[str, Priority] = {}
        self._problems: list[str] = []

    def run(self) -> int:
        began_s = time.monotonic()
        gate = self._folder / "gate"
        first = [self._submit("eve", f"gate{n}", gate=gate) for n in range(2)]
        while any(run.view.state != "RUNNING" or not run.view.steps for run in first):
            time.sleep(0.2)
        self._submit_all()
        print(f"submitted in {time.monotonic() - began_s:.0f} s")
        moved = self._runs[-1]
        while moved.view.state != "QUEUED":
            self._check(not moved.has_ended, f"{moved.id} never waited")
            time.sleep(0.2)
        waiting = [run for run in self._runs if run.view.state == "QUEUED"]
        cancelled = waiting[len(waiting) // 2 :][: self._arguments.cancel]
        for run in cancelled:
            run.stop()
        order = moved.queue(before="")
        self._check(order[0].run == moved.id, f"{moved.id} was not put first: {order[0]}")
        self._check(order[0].moved_by != "", "nobody is named who moved it")
        for queued in order:
            print(queued.place, queued.run, queued.user, queued.priority)
        used = [process for process in psutil.process_iter() if _is_driver(process)]
        memory = sum(process.memory_full_info().uss for process in used)
        print(f"{len(used)} drivers, {memory / 1e6 / max(1, len(used)):.0f} MB each of their own")
        gate.touch()
        opened_s = time.monotonic()
        if not self._arguments.no_kill:
            self._wait_for(len(self._runs) // 4)
            self._kill_head()
        for run in self._runs:
            run.wait(1800, raise_on_failure=False)
        took_s = time.monotonic() - opened_s
        print(f"{took_s:.0f} s since the gate was opened, {took_s / len(self._runs):.2f} s a run")
        self._judge(cancelled)
        minutes = (time.monotonic() - began_s) / 60
        print(f"{len(self._runs)} runs in {minutes:.1f} minutes, {len(self._problems)} problems")
        for problem in self._problems:
            print(f"  {problem}")
        return int(bool(self._problems))

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            self._problems.append(problem)

    def _submit_all(self) -> None:
        count = self._arguments.runs
        for number in range(count):
            user = "ann" if number < count * 3 // 5 else "bob"
            priority: Priority = (
                "high" if number % 10 == 9 else "low" if number % 10 == 4 else "normal"
            )
            run = self._submit(user, f"q{number}", priority=priority)
            self._runs.append(run)
            self._users[run.id], self._priorities[run.id] = user, priority

    def _submit(
        self, user: str, name: str, *, priority: Priority = "normal", gate: Path | None = None
    ) -> llmops.Run:
        os.environ["LOGNAME"] = user  # As `getpass` reads it.
        config = write_training(
            self._folder / f"workspace-{'gate' if gate else 'runs'}",
            name,
            hooks=HOOKS.format(gate=str(gate)) if gate else None,
            training={"max_steps": STEPS},
        )
        cluster = llmops.cluster("queue")
        return cluster.submit(config, priority=priority, progress=lambda _: None)

    def _wait_for(self, ended: int) -> None:
        while sum(run.has_ended for run in self._runs) < ended:
            time.sleep(0.5)

    def _kill_head(self) -> None:
        home = os.environ["LLMOPS_HOME"]
        for process in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                is_gcs = process.info["name"] == "gcs_server"
                if is_gcs and process.environ().get("LLMOPS_HOME") == home:
                    process.kill()
        unfinished = [run for run in self._runs if not run.has_ended]
        print(f"head killed; {len(unfinished)} runs had not ended")
        began_s = time.monotonic()
        while llmops.cluster("queue").info.is_ready:
            time.sleep(0.2)
        clusters.up(self._template, progress=print)
        print(f"up again after {time.monotonic() - began_s:.0f} s")
        for run in unfinished:  # Those that ran are their users' to submit again.
            if run.has_ended and run.view.end is not None and run.view.end.is_lost:
                run.retry()
                print(f"retried {run.id}")

    def _judge(self, cancelled: list[llmops.Run]) -> None:
        started: list[tuple[float, str]] = []
        for run in self._runs:
            events = run.events()
            ends = [event for event in events if isinstance(event, EndEvent)]
            succeeded = [event for event in ends if event.state == "SUCCEEDED"]
            if run in cancelled:
                self._check(run.state == "STOPPED", f"{run.id}, cancelled, is {run.state}")
                continue
            self._check(len(succeeded) == 1, f"{run.id} succeeded {len(succeeded)} times: {ends}")
            last = run.view.attempt
            steps = [e.step for e in events if isinstance(e, StepEvent) and e.attempt == last]
            self._check(steps[-1:] == [STEPS], f"{run.id} has steps {steps}")
            self._check(len(steps) == len(set(steps)), f"{run.id} has a step twice: {steps}")
            waits = [e for e in events if isinstance(e, QueueEvent) and e.attempt == 1]
            got = [event.time_s for event in waits if event.state == "end"]
            if got and last == 1:
                started.append((got[0], run.id))
        self._judge_order(started)

    def _judge_order(self, started: list[tuple[float, str]]) -> None:
        """Check the order of those that waited and were not interrupted by the end of the head."""
        runs = [run for _, run in sorted(started)]
        ranks = {"high": 0, "normal": 1, "low": 2}
        print("began:", " ".join(f"{self._users[r][0]}{self._priorities[r][0]}" for r in runs))
        moved = self._runs[-1].id
        inversions = [
            (early, late)
            for number, early in enumerate(runs)
            for late in runs[number + 3 :]  # Two begin at a time, and one may ask meanwhile.
            if ranks[self._priorities[early]] > ranks[self._priorities[late]] and early != moved
        ]
        self._check(not inversions, f"{len(inversions)} began before a higher priority")
        normal = [run for run in runs if self._priorities[run] == "normal"]
        for end in range(2, len(normal) + 1):
            counts = [
                sum(self._users[run] == user for run in normal[:end]) for user in ("ann", "bob")
            ]
            rest = {self._users[run] for run in normal[end:]}
            if rest == {"ann", "bob"} and abs(counts[0] - counts[1]) > 3:
                self._check(False, f"after {end} of normal priority: ann and bob began {counts}")


def _is_driver(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.environ().get("LLMOPS_HOME") == os.environ["LLMOPS_HOME"] and (
            "llmops_kernel.train.ray.entrypoint" in " ".join(process.cmdline())
        )
    return False


if __name__ == "__main__":
    sys.exit(main())
