"""Many processes at once from one fork server: what a fork costs, and how long each waits.

    python -m tests.benchmarks.forks --at-once 1 8 32 100 --rounds 5

The server has imported the whole training stack, as a node has it. Each process says that it runs
and whether it was forked, and ends without the interpreter's own end, which takes longer.
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


def starts(node: Node, count: int) -> Round:
    """Return seconds until each process runs, how many were forked, seconds until all ended."""
    begun_s = time.time()
    asked: list[tuple[float, subprocess.Popen[bytes]]] = []
    for _ in range(count):
        asked.append((time.time(), node.popen("-c", _PROGRAM)))
    waited, num_forked = [], 0
    for asked_s, process in asked:
        out, err = process.communicate(timeout=120)
        if process.returncode != 0:
            raise RuntimeError(err.decode())
        at_s, is_forked = out.split()
        waited.append(float(at_s) - asked_s)
        num_forked += int(is_forked)
    return waited, num_forked, time.time() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8, 32, 100])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-forks-") as folder:
        node = Node.create(Path(folder))
        node.start(*DEFAULT_MODULES)
        try:
            server = psutil.Process(node.ready(timeout_s=180).server_pid)
            starts(node, 2)
            before = server.memory_info().rss, server.num_fds()
            for count in asked.at_once:
                report(count, [starts(node, count) for _ in range(asked.rounds)])
            after = server.memory_info().rss, server.num_fds()
            print(
                f"server: {before[0] / 2**20:.0f} MiB and {before[1]} descriptors before,"
                f" {after[0] / 2**20:.0f} and {after[1]} after"
            )
        finally:
            node.stop()


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
