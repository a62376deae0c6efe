"""What a user far away from the API server sees: right answers, and how long they take.

    python -m tests.benchmarks.kuberay.distance [--round-trips 0,0.05,0.1,0.2,0.5,1]

Between the client and the stand-in of the API server is a relay that delays what it carries (see
`tests/k8s/standin/link.py`); pods are real Ray processes, near the API server as they would be. For
each round trip: `up`, `status` and `ls` with many clusters as commands, each a fresh process; a
JupyterLab's list of clusters; two small trainings from a Python process, the second one's time from
submit to its first step, and how long after it was made a step is seen there. The last row is a
round trip of 0.1 s where one request in a hundred is answered with 503. A user has the rights of
`rbac.yaml`. Exit code 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.kuberay.objects import MANY, one_of_many
from tests.browser.lab import Lab
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.link import FarLink
from tests.k8s.standin.process import ROOT, StandIn, shipped_rules
from tests.k8s.support.user_namespace import of_this_process
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.tiny_training import slow_hooks, write_training

USER, TOKEN, NEAR = "far", "fartok", "bench"
TIMEOUT_S = 600
ERRORS = 0.01
LOOKS = 10


@dataclass
class Level:
    """What was measured at one round trip, seconds."""

    round_trip_s: float
    share: float = 0.0
    """Of requests that fail."""
    found: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        errors = f", {self.share:.0%} errors" if self.share else ""
        return f"{1000 * self.round_trip_s:,.0f} ms{errors}"

    def check(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.wrong.append(f"{self.name}: {what}: {found}, not {expected}")


class Measurement:
    """One level after the other; `few` has the farm, `many` only the objects of clusters."""

    def __init__(self, few: StandIn, many: StandIn, folder: Path, clusters: int) -> None:
        self._few, self._many, self._folder, self._clusters = few, many, folder, clusters
        shutil.copytree(ROOT / "cluster_templates", folder / "cluster_templates")
        write_training(
            folder,
            "far",
            hooks=slow_hooks(0.3),
            training={"max_steps": 30},
            evaluation={"at_end": False},
        )

    def measure(self, level: Level) -> None:
        with ExitStack() as stack:
            near = self._environment(stack, self._few, NEAR, level)
            many = self._environment(stack, self._many, MANY, level)
            self._one_cluster(level, near)
            self._many_clusters(level, many)

    def _environment(
        self, stack: ExitStack, standin: StandIn, namespace: str, level: Level
    ) -> dict[str, str]:
        """A user of this namespace who has never asked for anything."""
        url = stack.enter_context(FarLink(standin.url, round_trip_s=level.round_trip_s))
        if level.share:
            fault = {"share": level.share, "user": USER, "message": "try again"}
            stack.enter_context(standin.faulty("503", **fault))
        path = self._folder / f"kubeconfig-{namespace}"
        path.unlink(missing_ok=True)
        standin.kubeconfig(path, namespace=namespace, token=TOKEN, server=url)
        home = self._folder / f"home-{namespace}"
        shutil.rmtree(home, ignore_errors=True)
        return {**os.environ, "KUBECONFIG": str(path), "LLMOPS_HOME": str(home)}

    def _one_cluster(self, level: Level, env: dict[str, str]) -> None:
        level.found["up"], done = self._command(env, "up", "kind-cpu")
        level.check("up", done.returncode, 0)
        level.found["status"], done = self._command(env, "status", "kind-cpu", "--json")
        state = json.loads(done.stdout)["state"] if done.stdout else done.stderr[-300:]
        level.check("status", (done.returncode, state), (0, "ready"))
        line = [sys.executable, "-m", "tests.benchmarks.kuberay.distance", "--client"]
        done = subprocess.run(
            [*line, str(self._folder)],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode:
            level.wrong.append(f"{level.name}: submit: {done.stderr[-500:]}")
        else:
            level.found |= json.loads(done.stdout.splitlines()[-1])
        _, done = self._command(env, "delete", "kind-cpu", "--yes", "--force")
        level.check("delete", done.returncode, 0)

    def _many_clusters(self, level: Level, env: dict[str, str]) -> None:
        expected = Counter(_state(number) for number in range(self._clusters))
        level.found["ls"], done = self._command(env, "ls", "--json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        level.check("ls", Counter(row["state"] for row in rows), expected)
        (self._folder / "lab").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder / "lab") as scratch, _environ(env):
            lab = Lab(Path(scratch), work=self._folder, home=Path(env["LLMOPS_HOME"]))
            try:
                lab.wait()
                self._side_bar(level, lab, expected)
            finally:
                lab.stop()

    def _side_bar(self, level: Level, lab: Lab, expected: Counter[str]) -> None:
        asked: list[float] = []
        begin_s = time.monotonic()
        shown: Counter[str] = Counter()
        while shown != expected and time.monotonic() - begin_s < 60:
            began_s = time.monotonic()
            rows = _asked(lab)["clusters"]
            asked.append(time.monotonic() - began_s)
            shown = Counter(row["info"]["state"] for row in rows if row["info"])
            time.sleep(0.05)
        level.found["side bar whole"] = time.monotonic() - begin_s
        level.check("side bar", shown, expected)
        for _ in range(LOOKS):
            began_s = time.monotonic()
            _asked(lab)
            asked.append(time.monotonic() - began_s)
        level.found["side bar answer"] = statistics.median(asked)

    def _command(
        self, env: dict[str, str], *words: str
    ) -> tuple[float, subprocess.CompletedProcess[str]]:
        llmops = str(Path(sys.executable).with_name("llmops"))
        began_s = time.monotonic()
        done = subprocess.run(
            [llmops, *words],
            cwd=self._folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return time.monotonic() - began_s, done


def _state(number: int) -> str:
    kind = number % 10
    return "stopped" if kind >= 8 else "starting" if kind == 7 else "ready"


def _asked(lab: Lab) -> Any:
    request = urllib.request.Request(
        f"{lab.url}/llmops/clusters", headers={"Authorization": f"token {lab.token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class _environ:
    """The environment of this process and of those that it starts, for a block."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env

    def __enter__(self) -> None:
        self._before = dict(os.environ)
        os.environ.update(self._env)

    def __exit__(self, *exc: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)


def client(folder: Path) -> None:
    """Submit twice from here and print the second one's figures; pods do not see the journal."""
    os.environ["LLMOPS_HOME"] = str(of_this_process(folder) / f"home-{NEAR}")
    os.chdir(folder)
    import llmops_kernel as llmops

    cluster = llmops.cluster("kind-cpu")
    cluster.submit(folder / "far.train.yaml", overrides=["training.max_steps=2"]).wait(TIMEOUT_S)
    began_s = time.monotonic()
    run = cluster.submit(folder / "far.train.yaml")
    returned_s = time.monotonic() - began_s
    late: dict[int, float] = {}
    while not run.has_ended:
        for step in run.view.steps:
            late.setdefault(step.step, time.time() - step.time_s)
        time.sleep(0.02)
    steps = [step.step for step in run.view.steps]
    assert steps == list(range(1, 31)), steps
    figures = {
        "submit returns": returned_s,
        "first step": run.view.submit_to_first_step_s,
        "step is seen": statistics.median(list(late.values())[5:]),
    }
    print(json.dumps(figures))


def admit(standin: StandIn, namespace: str) -> None:
    standin.create_namespace(namespace)
    standin.user(USER, TOKEN, shipped_rules(), namespace)


def report(levels: list[Level]) -> None:
    """Print a table: seconds, and in brackets the round trips by which it is above the first."""
    names = list(dict.fromkeys(name for level in levels for name in level.found))
    print("| round trip | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for level in levels:
        cells = [_cell(level, name, levels[0]) for name in names]
        print(f"| {level.name} | " + " | ".join(cells) + " |")
    for line in [line for level in levels for line in level.wrong]:
        print("WRONG", line)


def _cell(level: Level, name: str, base: Level) -> str:
    value, first = level.found.get(name), base.found.get(name)
    if value is None:
        return "–"
    if level is base or first is None or not level.round_trip_s:
        return f"{value:.2f}"
    return f"{value:.2f} ({(value - first) / level.round_trip_s:+.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--round-trips", default="0,0.05,0.1,0.2,0.5,1", help="seconds")
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--client", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options.client)
        return 0
    levels = [Level(float(word)) for word in options.round_trips.split(",")]
    levels.append(Level(0.1, share=ERRORS))
    folder = Path(tempfile.mkdtemp(prefix="ll-d-"))
    try:
        with (
            StandIn() as few,
            StandIn() as many,
            RayDashboard() as ray,
            Farm(few, mode="real", grace_s=1),
        ):
            admit(few, NEAR)
            admit(many, MANY)
            for number in range(options.clusters):
                for body in one_of_many(number, ray.address):
                    many.put(body)
            measurement = Measurement(few, many, folder, options.clusters)
            for level in levels:
                measurement.measure(level)
                print(f"{level.name}: {level.found} {level.wrong or ''}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(levels)
    return int(any(level.wrong for level in levels))


if __name__ == "__main__":
    sys.exit(main())
