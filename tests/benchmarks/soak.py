"""Many jobs one after another on a warm cluster: what is left of them?

    python -m tests.benchmarks.soak [--runs 200] [--train-every 20] [--cluster soak]

Starts a local cluster of that name (an existing one is used and left), submits minimal Ray jobs
(a driver with one task, and every so often a training run of the tiny model) and counts
processes, descriptors, zombies and memory at the start and at the end. The last line is JSON;
exit code 1 if anything leaked. The first jobs are not counted: they warm up what Ray keeps.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.local.launch import warm_folder
from llmops_kernel.providers.local.processes import cluster_processes
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import HeadRecord, cluster_folder
from llmops_kernel.store.paths import home
from llmops_kernel.warm.keeper import ask
from tests.soak.sampling import command_line
from tests.tiny_training import write_training

_FIRST = 5
_SETTLE_S = 20.0
_END_S = 300.0
# Ray opens connections and log files as it likes; a leak of one per job is far above these.
_SPARE_FDS = 20
_SPARE_BYTES = 32 * 1024 * 1024
_TASK = "import ray; ray.init(); print(ray.get(ray.remote(lambda: 7).remote()))"


@dataclass(frozen=True, kw_only=True)
class Count:
    """Of one cluster on this machine, all its processes together."""

    processes: int
    zombies: int
    launchers: int
    server_fds: int
    server_children: int
    server_rss_bytes: int
    server_pss_bytes: int
    raylet_fds: int
    forked: int
    cold_starts: int


def count(record: HeadRecord) -> Count:
    members = cluster_processes(record)
    folder = warm_folder(record)
    deadline_s = time.monotonic() + _SETTLE_S
    while (status := ask(folder, timeout_s=10)) is None:
        if time.monotonic() > deadline_s:
            raise SystemExit("the fork server does not answer; `llmops status` shows why")
        time.sleep(0.5)  # It may just be replaced: this package's own files were edited.
    server = psutil.Process(status["pid"])
    memory = server.memory_full_info()
    raylet = next(p for p in members if p.name() == "raylet")
    return Count(
        processes=len(members),
        zombies=sum(p.status() == psutil.STATUS_ZOMBIE for p in [*_below(members), *members]),
        launchers=sum("launcher.py" in command_line(p) for p in members),
        server_fds=server.num_fds(),
        server_children=status["children"],
        server_rss_bytes=memory.rss,
        server_pss_bytes=memory.pss,
        raylet_fds=raylet.num_fds(),
        forked=status["forked"],
        cold_starts=sum(event["event"] == "cold" for event in folder.read_events()),
    )


def _below(members: list[psutil.Process]) -> list[psutil.Process]:
    """A zombie has no environment; it is found by its parent."""
    pids = {process.pid for process in members}
    return [p for p in psutil.process_iter(["ppid"]) if p.info["ppid"] in pids and p not in members]


def find_or_choose(record: HeadRecord, at_most: int | None) -> Count:
    """Once the last job's processes have gone, or 20 s later."""
    deadline_s = time.monotonic() + _SETTLE_S
    while True:
        now = count(record)
        # Before the first count nothing is known but that a job's processes go within seconds.
        idle = at_most is not None and now.processes <= at_most
        if (idle and not now.zombies and not now.server_children) or time.monotonic() > deadline_s:
            return now
        time.sleep(1)


def one_job(client: JobsClient, number: int) -> float:
    """Seconds from submit to end."""
    name = f"soak-{number}-{time.time_ns()}"
    began_s = time.monotonic()
    client.submit(
        entrypoint=shlex.join(["python", "-c", _TASK]),
        submission_id=name,
        runtime_env={},
        metadata={},
    )
    while time.monotonic() - began_s < _END_S:
        job = client.get(name)
        if job is not None and job.is_terminal:
            if job.status != "SUCCEEDED":
                raise SystemExit(f"job {number} {job.status}: {job.message}")
            return time.monotonic() - began_s
        time.sleep(0.1)
    raise SystemExit(f"job {number} did not end within {_END_S:.0f} s")


def one_run(cluster: llmops.Cluster, folder: Path) -> float:
    began_s = time.monotonic()
    cluster.submit(folder / "soak.train.yaml").wait(_END_S)
    return time.monotonic() - began_s


def workspace(folder: Path) -> Path:
    write_training(
        folder,
        "soak",
        parallelism={"num_workers": 2},
        training={"global_batch_size": 4, "max_steps": 2},
    )
    return folder


def leaks(before: Count, after: Count) -> list[str]:
    """What is more than it may be, in words."""
    found = []
    for name, spare in (
        ("processes", 0),
        ("zombies", 0),
        ("launchers", 0),
        ("server_children", 0),
        ("server_fds", 0),
        ("raylet_fds", _SPARE_FDS),
        ("server_rss_bytes", _SPARE_BYTES),
        ("cold_starts", 0),
    ):
        old, new = getattr(before, name), getattr(after, name)
        if new > old + spare:
            found.append(f"{name}: {old} -> {new}")
    return found


def soak(
    cluster: llmops.Cluster, *, runs: int, train_every: int, folder: Path
) -> dict[str, object]:
    record = cluster_folder(home(), cluster.name).read()
    assert record is not None
    took_s = []
    before = None
    with cluster.client() as client:
        for number in range(1, _FIRST + runs + 1):
            is_run = train_every > 0 and number % train_every == 0
            took = one_run(cluster, folder) if is_run else one_job(client, number)
            if number == _FIRST:
                before = find_or_choose(record, at_most=None)
                print("before", before)
            elif number > _FIRST:
                took_s.append(took)
                print(f"{number - _FIRST}/{runs}: {took:.2f} s", flush=True)
    assert before is not None
    after = find_or_choose(record, at_most=before.processes)
    print("after ", after)
    return {
        "runs": runs,
        "median_s": round(sorted(took_s)[len(took_s) // 2], 3),
        "before": asdict(before),
        "after": asdict(after),
        "leaks": leaks(before, after),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--train-every", type=int, default=20, help="0: no training runs")
    parser.add_argument("--cluster", default="soak")
    options = parser.parse_args()
    was_there = any(
        info.name == options.cluster and info.state == "READY" for info in LocalProvider().list()
    )
    cluster = llmops.cluster(LocalProvider().up(ClusterTemplate(name=options.cluster)).name)
    try:
        deadline_s = time.monotonic() + 180
        while not llmops.cluster(cluster.name).info.warm.startswith("warm"):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"no fork server: {llmops.cluster(cluster.name).info.warm}")
            time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            result = soak(
                cluster,
                runs=options.runs,
                train_every=options.train_every,
                folder=workspace(Path(folder)),
            )
    finally:
        if not was_there:
            cluster.down()
    print(json.dumps(result))
    return 1 if result["leaks"] else 0


if __name__ == "__main__":
    sys.exit(main())
