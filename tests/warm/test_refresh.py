"""What a library took from the server's environment follows the child's."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.warm.conftest import Node

CLOCK = "import time; print(time.strftime('%Z', time.localtime(0)))"
AGE = "import logging; print(logging.LogRecord('a', 20, 'b', 1, 'c', None, None).relativeCreated)"
THREADS = """
import ctypes, numpy
path = next(l.split()[-1] for l in open("/proc/self/maps") if "openblas" in l)
print(ctypes.CDLL(path).scipy_openblas_get_num_threads64_())
"""


def test_the_time_zone(node: Node) -> None:
    for zone in ("EST5", "JST-9"):
        done = node.run("-c", CLOCK, env=node.env(TZ=zone))
        assert done.stdout.decode().strip() == zone[:3]


def test_threads_of_the_numeric_library(node: Node) -> None:
    for count in ("1", "2"):
        env = node.env(OMP_NUM_THREADS=count)
        warm, plain = (node.run("-c", THREADS, env=env, warm=w).stdout for w in (True, False))
        assert warm == plain == f"{count}\n".encode()


def test_a_log_counts_from_the_start_of_its_own_process(node: Node) -> None:
    time.sleep(2)  # So that the server is older than the process.
    began_s = time.time()
    done = node.run("-c", AGE)
    assert 0 <= float(done.stdout) <= 1000 * (time.time() - began_s)


def test_each_process_draws_its_own_random_numbers(own_node: Node, tmp_path: Path) -> None:
    """Those of torch, and of a library that makes generators when it is imported."""
    (tmp_path / "draws.py").write_text(
        "from random import Random\n"
        "NAMES, FIXED, LATER = Random(), Random(3), Random()\n"
        "LATER.seed(4)\n"
    )
    code = (
        "import draws, torch\n"
        "print(torch.rand(1).item(), draws.NAMES.random(), draws.FIXED.random(),"
        " draws.LATER.random())"
    )
    own_node.start("draws", "torch", path=str(tmp_path))
    own_node.ready(timeout_s=120)
    path = str(tmp_path)
    runs = [own_node.run("-c", code, env=own_node.env(PYTHONPATH=path)) for _ in range(2)]
    assert own_node.reasons() == []
    first, second = (run.stdout.decode().split() for run in runs)
    assert [one == other for one, other in zip(first, second, strict=True)] == [
        *(False, False),  # As with two plain interpreters.
        *(True, True),
    ]
    assert first[2:] == [str(Random(3).random()), str(Random(4).random())]
