"""Many processes at once from one fork server: what a fork costs, and how long each waits.

    python -m tests.benchmarks.forks --at-once 1 8 32 100 --rounds 5
    python -m tests.benchmarks.forks --nodes 16 --at-once 16 128

The server has imported the whole training stack, as a node has it. Each process says that it runs
and whether it was forked, and ends without the interpreter's own end, which takes longer. With
`--nodes` as many servers start at once on this machine's one disk, which share its cores too, and
the processes are divided among them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from llmops_kernel.warm.preload import DEFAULT_MODULES
from tests.warm.conftest import Node

_PROGRAM = (
    "import sys, time; now = time.time();"
    " print(now, int('torch' in sys.modules), flush=True);"
    " import os; os._exit(0)"
)
Round = tuple[list[float], int, float]


def starts(nodes: list[Node], count: int) -> Round:
    """Return seconds until each process runs, how many were forked, seconds until all ended."""
    begun_s = time.time()
    asked: list[tuple[float, subprocess.Popen[bytes]]] = []
    for number in range(count):
        asked.append((time.time(), nodes[number % len(nodes)].popen("-c", _PROGRAM)))
    waited, num_forked = [], 0
    for asked_s, process in asked:
        out, err = process.communicate(timeout=120)
        if process.returncode != 0:
            raise RuntimeError(err.decode())
        at_s, is_forked = out.split()
        waited.append(float(at_s) - asked_s)
        num_forked += int(is_forked)
    return waited, num_forked, time.time() - begun_s


def started(nodes: list[Node]) -> list[psutil.Process]:
    """Start the servers of all nodes at once, and return them when all are ready."""
    begun_s, read_before = time.time(), _read_bytes()
    for node in nodes:
        node.start(*DEFAULT_MODULES)
    servers = [psutil.Process(node.ready(timeout_s=600).server_pid) for node in nodes]
    used_s = [sum(server.cpu_times()[:2]) for server in servers]
    print(
        f"{len(nodes)} servers ready after {time.time() - begun_s:.1f} s,"
        f" {statistics.median(used_s):.1f} s of a core each (most {max(used_s):.1f}),"
        f" {(_read_bytes() - read_before) / 2**20:.0f} MiB read from the disk",
        flush=True,
    )
    return servers


def _read_bytes() -> int:
    counters = psutil.disk_io_counters()
    return counters.read_bytes if counters else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8, 32, 100])
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-forks-") as folder:
        nodes = [Node.create(Path(folder) / str(number)) for number in range(asked.nodes)]
        try:
            servers = started(nodes)
            starts(nodes, 2 * asked.nodes)
            before = _held(servers)
            for count in asked.at_once:
                report(count, [starts(nodes, count) for _ in range(asked.rounds)])
            after = _held(servers)
            print(
                f"servers: {before[0] / 2**20:.0f} MiB and {before[1]} descriptors before,"
                f" {after[0] / 2**20:.0f} and {after[1]} after"
            )
        finally:
            for node in nodes:
                node.stop()


def _held(servers: list[psutil.Process]) -> tuple[int, int]:
    """Return resident memory and descriptors of all."""
    return sum(one.memory_info().rss for one in servers), sum(one.num_fds() for one in servers)


def report(count: int, rounds: list[Round]) -> None:
    waited = sorted(seconds for each, _, _ in rounds for seconds in each)
    each_ms = [1e3 * total / count for _, _, total in rounds]
    num_forked = sum(forked for _, forked, _ in rounds)
    print(
        f"{count:4} at once: {statistics.median(each_ms):6.1f} ms a process"
        f" ({min(each_ms):.1f} - {max(each_ms):.1f}), runs after"
        f" {1e3 * statistics.median(waited):.0f} ms (last {1e3 * waited[-1]:.0f}),"
        f" {num_forked} of {count * len(rounds)} forked",
        flush=True,
    )


if __name__ == "__main__":
    main()
