"""Passes a stop request on to the workers of a script: `python -m ... stop|look`.

In a process of its own: a client of Ray's store may end its process when the cluster is not as it
expects, and the driver has to journal the end of the run. Reads the run spec from its
input and prints what the workers wrote as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Literal

from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.stopping import ASKS, KEPT, STOP, STOPPED

_TIMEOUT_S = 10.0


def ask(spec: RunSpec, action: Literal["stop", "look"]) -> dict[str, Any]:
    """Return what the workers wrote, after the request where `action` is stop; may be empty."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-m", __name__, action]
    try:
        done = subprocess.run(
            words,
            env=environment,
            input=spec.encode(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return answer


def connect() -> None:
    """Make Ray's key-value store usable in this process.

    `ray.init` would make a second Ray job of the run.
    """
    from llmops_kernel.driver import compat

    client = compat.get("GcsClient")(address=os.environ["RAY_ADDRESS"])
    compat.get("_initialize_internal_kv")(client)


def main() -> None:
    from llmops_kernel.train.script.tracking import ClusterBoard

    connect()
    board = ClusterBoard(RunSpec.decode(sys.stdin.read()))
    if sys.argv[1] == "stop":
        board.put(STOP, True)
    print(json.dumps({name: board.get(name) for name in (ASKS, STOPPED, KEPT)}))


if __name__ == "__main__":
    main()
