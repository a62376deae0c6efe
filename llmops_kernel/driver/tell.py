"""Hands a value to a run that is under way: `python -m llmops_kernel.driver.tell` as a Ray job.

A client reaches no more of a cluster than Ray's Jobs API, on Kubernetes too. Ray starts jobs that
ask for nothing on the head node, where the drivers of runs are.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from llmops_kernel.driver import kv_store
from llmops_kernel.driver.beats import beats_folder
from llmops_kernel.driver.queue_place import read_cluster_use
from llmops_kernel.driver.queue_watch import Store, move, queue_of, tickets_in
from llmops_kernel.errors import StoreError
from llmops_kernel.store.record import MESSAGE_METADATA, QUEUE_LINE, QUEUE_MESSAGE, message_of_job
from llmops_kernel.track.stopping import FileBoard


def put_here(name: str, value: Any) -> None:
    """Leave a value on this node too, where every driver is: a plain script has no Ray."""
    run_id, attempt, key = name.split("/")
    with suppress(OSError, StoreError):
        folder = beats_folder(run_id, int(attempt))
        folder.mkdir(parents=True, exist_ok=True)
        FileBoard(folder).put(key, value)


def pop_here(name: str) -> Any:
    """Return a value that was left on this node, and remove it; None without one."""
    run_id, attempt, key = name.split("/")
    with suppress(OSError, StoreError):
        folder = beats_folder(run_id, int(attempt))
        value = FileBoard(folder).get(key)
        (folder / key).unlink(missing_ok=True)
        return value
    return None


def main() -> None:
    import ray

    name, value = message_of_job(os.environ)
    ray.init(log_to_driver=False, configure_logging=False)
    if name == QUEUE_MESSAGE:
        print(f"{QUEUE_LINE}{json.dumps(_queue(value))}", flush=True)
    else:
        kv_store.put(name, value)
        put_here(name, value)
        print(f"{MESSAGE_METADATA}: {name}", flush=True)
    ray.shutdown()


def _queue(change: dict[str, Any]) -> dict[str, Any]:
    """Change the queue if a run is named, and return it: `{"moved", "waiting", "running"}`."""
    store = cast("Store", kv_store)
    moved = move(store, **change) if change else None
    use = read_cluster_use()
    tickets = [ticket for ticket in tickets_in(store) if ticket.job not in use.ended]
    return {
        "moved": moved,
        "waiting": [asdict(t) for t in queue_of(tickets, total=use.total, store=store)],
        "running": [asdict(ticket) for ticket in tickets if not ticket.waits],
    }


if __name__ == "__main__":
    main()
