"""The process of a head gives the fork server, which it starts first, the workers' environment."""

from __future__ import annotations

import json
import subprocess
import sys

from llmops_kernel.providers.local import head

_PROGRAM = """\
import json, os
before = dict(os.environ)
import ray.scripts.scripts
print(json.dumps({name: value for name, value in os.environ.items() if before.get(name) != value}))
"""


def test_it_sets_what_ray_sets_when_it_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env={}
    )
    assert json.loads(done.stdout) == head.SET_BY_RAY


def test_it_is_ray_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", head.__name__, "start", "--no-such-option"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "start" in done.stderr.splitlines()[0]
    assert "--no-such-option" in done.stderr
