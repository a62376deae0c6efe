"""Many clusters and many workers on Kubernetes: what do listing and a status cost?

    python -m tests.benchmarks.kuberay.scale [--clusters 200] [--workers 1000] [--minutes 3]

Against the stand-in of the API server (a process of its own). First a namespace with many
RayClusters, of which most are ready with a Ray that answers through the service proxy, some are
suspended and some starting: how long the first and later lists take, and how many lists and
watches the API server has counted. Then one RayCluster with many workers whose pods and
conditions another process changes all the time, `--rate` a second: how long `get` takes and how
the memory of this process moves. The last line is JSON; exit code 1 above the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from tests.benchmarks.kuberay.objects import (
    BIG,
    MANY,
    Body,
    big_cluster,
    big_raycluster,
    one_of_many,
    worker_pod,
)
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.ray_dashboard import RayDashboard

LIST_S = 1.0
GET_S = 0.1
GROWTH_BYTES = 24 * 1024 * 1024


def main() -> int:
    args = _arguments()
    if args.report:
        report(args.report, workers=args.workers, rate=args.rate)
        return 0
    with tempfile.TemporaryDirectory() as folder, StandIn() as standin, RayDashboard() as ray:
        os.environ["LLMOPS_HOME"] = folder
        listed = measure_list(standin, ray, Path(folder), num_clusters=args.clusters)
        status = measure_status(standin, ray, Path(folder), args)
        close_caches()
    load = f"{os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs"
    print(json.dumps({**listed, **status, "load": load}))
    slow = listed["first_list_s"] > LIST_S or status["get_p95_s"] > GET_S
    grown = status["rss_growth_bytes"] > GROWTH_BYTES
    return int(slow or grown or listed["watches"] != 1 or listed["lists"] != 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    parser.add_argument("--report", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure_list(standin: StandIn, ray: RayDashboard, folder: Path, *, num_clusters: int) -> Body:
    provider = _provider(standin, folder, MANY)
    for number in range(num_clusters):
        for body in one_of_many(number, ray.address):
            standin.put(body)
    standin.stats(reset=True)
    cpu_s = time.process_time()
    first_s, infos = _timed(provider.list)
    cpu_s = time.process_time() - cpu_s
    later = [_timed(provider.list)[0] for _ in range(10)]
    path = f"/apis/ray.io/v1/namespaces/{MANY}/rayclusters"
    stats = standin.stats()
    states = sorted(str(info.state) for info in infos)
    close_caches()
    result = {
        "clusters": len(infos),
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "first_list_s": round(first_s, 3),
        "first_list_cpu_s": round(cpu_s, 3),
        "later_list_s": round(statistics.median(later), 3),
        "slowest_later_list_s": round(max(later), 3),
        "lists": stats["requests"].get(f"list {path}", 0),
        "watches": stats["requests"].get(f"watch {path}", 0),
        "open_watches": stats["watches"].get(path, 0),
    }
    print(f"{len(infos)} clusters: {result}", flush=True)
    return result


def measure_status(
    standin: StandIn, ray: RayDashboard, folder: Path, args: argparse.Namespace
) -> Body:
    provider = _provider(standin, folder, BIG)
    for body in big_cluster(args.workers, ray.address):
        standin.put(body)
    line = [sys.executable, "-m", "tests.benchmarks.kuberay.scale", "--workers", str(args.workers)]
    line += ["--rate", str(args.rate), "--report", _control(standin)]
    reporter = subprocess.Popen(line)
    try:
        return _watch_status(provider, args)
    finally:
        reporter.kill()
        reporter.wait()


def _watch_status(provider: KubeRayProvider, args: argparse.Namespace) -> Body:
    process = psutil.Process()
    times: list[float] = []
    cpu: list[float] = []
    noise: list[float] = []
    rss: list[int] = []
    seen: set[int] = set()
    first_s, _ = _timed(lambda: provider.get(BIG))
    end_s = time.monotonic() + args.minutes * 60
    while time.monotonic() < end_s:
        cpu_s = time.thread_time()
        took_s, info = _timed(lambda: provider.get(BIG))
        cpu.append(time.thread_time() - cpu_s)
        times.append(took_s)
        seen.add(info.workers_ready)
        noise.append(_timed(_same_work)[0])
        rss.append(process.memory_info().rss)
        time.sleep(0.1)
    # The caches fill in the first third.
    find_or_choose = rss[len(rss) // 3 :]
    result = {
        "workers": args.workers,
        "first_get_s": round(first_s, 3),
        "get_cpu_median_s": round(statistics.median(cpu), 5),
        "get_median_s": round(statistics.median(times), 5),
        "get_p95_s": round(sorted(times)[int(len(times) * 0.95)], 5),
        "get_max_s": round(max(times), 3),
        "same_work_p95_s": round(sorted(noise)[int(len(noise) * 0.95)], 5),
        "gets": len(times),
        "different_counts_seen": len(seen),
        "last_message": info.message,
        "rss_bytes": rss[-1],
        "rss_growth_bytes": round(_mean(find_or_choose[-50:]) - _mean(find_or_choose[:50])),
        "minutes": args.minutes,
    }
    print(f"{args.workers} workers: {result}", flush=True)
    return result


def _same_work() -> None:
    """As much arithmetic as a `get`, which waits for nobody: what the machine's load costs."""
    end_s = time.thread_time() + 0.005
    while time.thread_time() < end_s:
        sum(range(1000))


def report(control: str, *, workers: int, rate: float) -> None:
    """Another process: pods come and go, and the operator counts them."""
    import httpx

    rng = random.Random(7)
    down: set[int] = set()
    http = httpx.Client(base_url=control, trust_env=False, timeout=30)
    while True:
        number = rng.randrange(workers)
        down ^= {number}
        http.post("/put", json=worker_pod(number, ready=number not in down))
        if rng.random() < 0.2:
            http.post("/put", json=big_raycluster(workers, ready=workers - len(down)))
        if len(down) > workers // 20:
            for other in sorted(down):
                http.post("/put", json=worker_pod(other, ready=True))
            down.clear()
        time.sleep(1 / rate)


def _provider(standin: StandIn, folder: Path, namespace: str) -> KubeRayProvider:
    standin.create_namespace(namespace)
    path = standin.kubeconfig(folder / f"kubeconfig-{namespace}", namespace=namespace)
    os.environ["KUBECONFIG"] = str(path)
    return KubeRayProvider(folder / "home")


def _control(standin: StandIn) -> str:
    assert standin._control is not None
    return str(standin._control.base_url)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.perf_counter()
    answer = call()
    return time.perf_counter() - began_s, answer


def _mean(values: list[int]) -> float:
    return sum(values) / max(1, len(values))


if __name__ == "__main__":
    sys.exit(main())
