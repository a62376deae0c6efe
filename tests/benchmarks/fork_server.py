"""What the fork server imports, and what a worker adds to it: seconds and memory of two trees.

    git archive COMMIT llmops_kernel | tar x -C BEFORE
    python -m tests.benchmarks.fork_server BEFORE . --rounds 5

Each tree in turn, each time in a new process, which imports what the fork server does and then what
a worker of a training does. Processor time, so that it may be measured on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

IMPORTING = """
import json, sys, time
from pathlib import Path
from llmops_kernel.warm.preload import DEFAULT_MODULES, preload, without_collections

def sizes():
    lines = map(str.split, Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {name: int(size) / 1024 for name, size, *_ in lines if name in ("Rss:", "Pss:")}

with without_collections():
    preload(list(DEFAULT_MODULES))
server = {"s": time.process_time(), **sizes(), "modules": len(sys.modules)}
began_s = time.process_time()
import llmops_kernel.train.loop
for name in ("preference", "heads", "embed"):
    try:
        __import__(f"llmops_kernel.train.objectives.{name}")
    except ImportError:
        pass  # A tree from before they were there.
after = sizes()
worker = {"s": time.process_time() - began_s, "modules": len(sys.modules) - server["modules"]}
worker |= {name: after[name] - server[name] for name in after}
print(json.dumps({"server": server, "worker adds": worker}))
"""


def measure(tree: Path) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING],
        env=os.environ | {"PYTHONPATH": str(tree.resolve()), "HF_HUB_OFFLINE": "1"},
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = [[measure(tree) for tree in options.trees] for _ in range(options.rounds)]
    for tree, found in zip(options.trees, zip(*rounds, strict=True), strict=True):
        for part in ("server", "worker adds"):
            medians = {
                name: statistics.median(one[part][name] for one in found) for name in found[0][part]
            }
            numbers = ", ".join(f"{name} {value:,.2f}" for name, value in medians.items())
            print(f"{tree}, {part}: {numbers}", flush=True)


if __name__ == "__main__":
    main()
