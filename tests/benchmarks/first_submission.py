"""`up`, and submissions as soon as it has returned, one after another; a cluster each round.

    python -m tests.benchmarks.first_submission --rounds 5

Prints the seconds until the cluster is up, and of each submission until the end of its first step.
The first one waits for what is not ready when `up` returns. The rounds have a home in common, as
clusters of a user have; round 0, which finds nothing that one before has left, is not counted. For
two commits in turn, run it in a checkout of each with PYTHONPATH set to it. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import llmops_kernel as llmops
from llmops_kernel.store.paths import HOME_ENV_VAR
from llmops_kernel.warm.files import WarmFolder
from tests.benchmarks.presets import Preset, write_workspace

_IMPORTS = "imports of the fork server"


def one_round(workspace: Path, config: Path, *, submissions: int) -> dict[str, float]:
    """Return seconds: of `up`, of each submission to its first step, of the imports."""
    begun_s = time.time()
    cluster = llmops.up("local")
    found = {"up": time.time() - begun_s}
    try:
        for number in range(1, submissions + 1):
            run = cluster.submit(config, workspace=workspace)
            run.wait()
            seconds = run.view.submit_to_first_step_s
            assert seconds is not None, run.logs()
            found[f"submission {number}"] = float(seconds)
        found |= _imports(begun_s)
    finally:
        cluster.down()
    return found


def _imports(since_s: float) -> dict[str, float]:
    """Return how long the newest fork server of this user imported."""
    reports = [
        WarmFolder(path.parent).read_report()
        for path in Path(f"/tmp/llmops-{os.getuid()}").glob("*/warm/report.json")
        if path.stat().st_mtime > since_s
    ]
    return {_IMPORTS: float(reports[0]["took_s"])} if reports else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--submissions", type=int, default=3)
    asked = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="llmops-first-") as folder:
        os.environ[HOME_ENV_VAR] = str(Path(folder, "home"))
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        config = write_workspace(Preset(asked.preset), workspace)
        for number in range(asked.rounds + 1):
            found = one_round(workspace, config, submissions=asked.submissions)
            rounds.append(found)
            shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in found.items())
            print(f"{number}: {shown}", flush=True)
    del rounds[0]
    for name in rounds[0]:
        values = sorted(found[name] for found in rounds if name in found)
        print(f"{name}: {statistics.median(values):.2f} s ({values[0]:.2f} - {values[-1]:.2f})")
    both = statistics.median(found["up"] + found["submission 1"] for found in rounds)
    print(f"up and the first submission together: {both:.2f} s")


if __name__ == "__main__":
    main()
