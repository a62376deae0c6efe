"""What a library took from the server's environment follows the child's."""

from __future__ import annotations

from tests.warm.conftest import Node

CLOCK = "import time; print(time.strftime('%Z', time.localtime(0)))"
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
