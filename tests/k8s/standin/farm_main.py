"""Run operator, scheduler, kubelets and Kueue: `python -m tests.k8s.standin.farm_main`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.k8s.standin.kubelet.simulated import Kubelet
from tests.k8s.standin.nodes.scheduler import Scheduler
from tests.k8s.standin.operator.reconcile import RAYCLUSTERS, Reconciler
from tests.k8s.standin.runtime.client import TROUBLE, Api, Mirror, Obj

log = logging.getLogger("operator")
Key = tuple[str, str]
PARTS = ("operator", "scheduler", "kubelet", "kueue", "quota")
READY = "operator: ready"


class Queue:
    """Calls `work` for each key that was added, one key at a time, and again when it asks."""

    def __init__(self, work: Callable[[str, str], Awaitable[float | None]], retry_s: float):
        self._work, self._retry_s = work, retry_s
        self._waiting: dict[Key, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: Key) -> None:
        if key in self._waiting:
            self._waiting[key].set()
            return
        self._waiting[key] = asyncio.Event()
        self._waiting[key].set()
        task = asyncio.get_running_loop().create_task(self._serve(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, key: Key) -> None:
        event = self._waiting[key]
        later: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), later)
            event.clear()
            # What comes together is worked on together, as in a real work queue under load.
            await asyncio.sleep(0.02)
            try:
                later = await self._work(*key)
            except TROUBLE as error:
                log.info("%s: %s", key, error)
                later = self._retry_s
            except Exception:
                log.exception("%s", key)
                later = 5.0


def watch_clusters(clusters: Mirror, pods: Mirror, queue: Queue) -> None:
    """Fill the queue as controller-runtime would: new specs, labels, and changes of own pods."""
    seen: dict[Key, Any] = {}

    def cluster_changed(event: str, cluster: Obj) -> None:
        meta = cluster["metadata"]
        key = (meta["namespace"], meta["name"])
        mark = [meta["generation"], meta.get("labels"), meta.get("annotations")]
        mark.append(meta.get("deletionTimestamp"))
        if event == "DELETED":
            seen.pop(key, None)
        elif seen.get(key) != mark:
            seen[key] = mark
            queue.add(key)

    def pod_changed(_: str, pod: Obj) -> None:
        name = (pod["metadata"].get("labels") or {}).get("ray.io/cluster")
        if name:
            queue.add((pod["metadata"]["namespace"], name))

    clusters.listen(cluster_changed)
    pods.listen(pod_changed)


async def serve(options: argparse.Namespace) -> None:
    async with Api(options.server, ca_file=options.ca, token=options.token) as api:
        work = await build(api, options)
        tasks = [asyncio.create_task(job) for job in work]
        print(READY, flush=True)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        watch_parent(stop)
        ended = asyncio.create_task(stop.wait())
        await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception():
                log.error("a part ended", exc_info=task.exception())
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def watch_parent(stop: asyncio.Event) -> None:
    """End with whoever started this: a test that is killed leaves no clusters behind."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        with contextlib.suppress(RuntimeError):  # The loop has ended before.
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, daemon=True).start()


async def build(api: Api, options: argparse.Namespace) -> list[Coroutine[Any, Any, None]]:
    """The parts that were asked for, on one set of mirrors."""
    mirrors = {
        "clusters": Mirror(api, f"{RAYCLUSTERS}/rayclusters"),
        "pods": Mirror(api, "/api/v1/pods"),
        "services": Mirror(api, "/api/v1/services"),
        "nodes": Mirror(api, "/api/v1/nodes"),
        "claims": Mirror(api, "/api/v1/persistentvolumeclaims"),
    }
    work: list[Coroutine[Any, Any, None]] = []
    if "kubelet" in options.parts.split(","):
        kubelet = await make_kubelet(api, mirrors, options)
        work += [kubelet] if kubelet else []
    work += _controllers(api, mirrors, options)
    running = [asyncio.create_task(mirror.run()) for mirror in mirrors.values()]
    await asyncio.gather(*(mirror.synced.wait() for mirror in mirrors.values()))
    return [*work, *(_forever(task) for task in running)]


def _controllers(
    api: Api, mirrors: dict[str, Mirror], options: argparse.Namespace
) -> list[Coroutine[Any, Any, None]]:
    parts, pods = options.parts.split(","), mirrors["pods"]
    work: list[Coroutine[Any, Any, None]] = []
    if "scheduler" in parts:
        scheduler = Scheduler(api, pods=pods, nodes=mirrors["nodes"], claims=mirrors["claims"])
        work.append(scheduler.run())
    kueue = None
    if "kueue" in parts:
        from tests.k8s.standin.kueue.workloads import Kueue

        clusters, elastic = mirrors["clusters"], not options.no_elastic_jobs
        kueue = Kueue(api, clusters=clusters, pods=pods, elastic=elastic)
        work.append(kueue.run())
    if "quota" in parts:
        from tests.k8s.standin.nodes.quota import Quotas

        work.append(Quotas(api, pods=pods).run())
    if "operator" in parts:
        reconciler = Reconciler(
            api,
            clusters=mirrors["clusters"],
            pods=pods,
            services=mirrors["services"],
            requeue_s=options.requeue,
            may_run=kueue.may_run if kueue else lambda _: True,
        )
        queue = Queue(reconciler.reconcile, options.requeue)
        watch_clusters(mirrors["clusters"], pods, queue)
    return work


async def _forever(task: asyncio.Task[None]) -> None:
    try:
        await task
    finally:
        task.cancel()


async def make_kubelet(
    api: Api, mirrors: dict[str, Mirror], options: argparse.Namespace
) -> Coroutine[Any, Any, None] | None:
    if options.mode == "simulated":
        Kubelet(api, pods=mirrors["pods"], delay_s=options.delay)
        return None
    from tests.k8s.standin.kubelet.real import RealKubelet

    kubelet = RealKubelet(
        api, pods=mirrors["pods"], folder=Path(options.folder), grace_s=options.grace
    )
    return kubelet.run()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--mode", choices=("real", "simulated"), default="simulated")
    parser.add_argument("--parts", default="operator,scheduler,kubelet,quota")
    parser.add_argument("--requeue", type=float, default=0.5, help="KubeRay's own is 2 s")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds until pods are ready")
    parser.add_argument("--grace", type=float, default=3.0, help="seconds a pod has to end")
    parser.add_argument("--no-elastic-jobs", action="store_true", help="a feature gate of Kueue")
    parser.add_argument("--folder", default="", help="of the nodes' files, for real pods")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(parse(sys.argv[1:])))
