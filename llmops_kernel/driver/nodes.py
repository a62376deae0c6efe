"""The nodes, the processes and the cores of an attempt."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from llmops_kernel.config.models.section import NODE_PRICE_ENV_VAR, NodePrice
from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.metrics.events import Event, HoldEvent
from llmops_kernel.warm.launcher import DRIVER_ENV_VAR
from llmops_kernel.warm.refresh import set_threads

Node = tuple[str, str]
"""A node's id, and its price as it is in the environment of its processes."""


def this_node() -> Node:
    """Return the node of this process, which is connected to Ray."""
    import ray

    node_id = str(ray.get_runtime_context().get_node_id())
    return node_id, os.environ.get(NODE_PRICE_ENV_VAR, "")


def only_node() -> Node:
    """Return the node of a driver that does not use Ray itself.

    Its script may: what that holds on other nodes is not known, and so the cost is not.
    """
    price = NodePrice.read(os.environ)
    is_alone = price is not None and price.only_node
    return os.uname().nodename, os.environ[NODE_PRICE_ENV_VAR] if is_alone else ""


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed because memory ran out; None: not known.

    Of the container, where there is one (cgroup v2), else of the whole node.
    """
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with suppress(OSError):
            counts = dict(line.split() for line in Path(file).read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return None


class NodeHolds:
    """Writes a hold's begin and end into the journal of the attempt."""

    def __init__(
        self,
        emit: Callable[[Event], object],
        *,
        on_use: Callable[[Iterable[str]], object] = lambda _: None,
    ) -> None:
        """Set it up. `on_use` is told the ids of the other nodes whenever they change."""
        self._emit, self._on_use = emit, on_use
        self._driver_node: Node | None = None
        self._held: set[Node] = set()
        self._ended_s: dict[Node, float] = {}

    def begin(self, driver_node: Node) -> None:
        """Journal that the driver's node is held, from the start of the driver to its end."""
        self._driver_node = driver_node
        self._write(driver_node, "begin", since_s=driver_times()[0])

    def use(self, nodes: Iterable[Node], *, since_s: float = 0.0) -> None:
        """Journal the other nodes that are held from now on, or from `since_s` (Unix)."""
        current = {
            node for node in nodes if self._driver_node is None or node[0] != self._driver_node[0]
        }
        for node in sorted(current - self._held):
            # Not before its last end, which would close this hold too.
            self._write(node, "begin", since_s=max(since_s, self._ended_s.get(node, 0.0)))
        for node in sorted(self._held - current):
            self._ended_s[node] = time.time()
            self._write(node, "end", since_s=self._ended_s[node])
        self._held = current
        self._on_use([node for node, _ in current])

    def _write(self, node: Node, state: Literal["begin", "end"], *, since_s: float = 0.0) -> None:
        price = NodePrice.read({NODE_PRICE_ENV_VAR: node[1]})
        self._emit(
            HoldEvent(
                node=node[0],
                state=state,
                node_hour=None if price is None else price.node_hour,
                kwh=None if price is None else price.kwh,
                currency="" if price is None else price.currency,
                time_s=since_s,
            )
        )


# --- Start times of processes, on the clock of time.time(), to a hundredth of a second ---


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def born_s(pid: int) -> float:
    """Return the Unix time (s) at which a process started. Raises OSError if there is none.

    psutil adds the ticks to the kernel's boot time, which has whole seconds only.
    """
    # proc_pid_stat(5): starttime is field 22, in ticks since boot; the name (2) may hold spaces.
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS_PER_S)


def driver_times() -> tuple[float, float | None]:
    """Return the start of this driver and of the Ray job supervisor that is its ancestor, or None.

    A forked driver is a child of the fork server; its launcher is a child of the supervisor.
    """
    pid = int(os.environ.get(DRIVER_ENV_VAR) or os.getpid())
    supervisor = next((ancestor for ancestor in _above(pid) if _is_supervisor(ancestor)), None)
    return born_s(pid), None if supervisor is None else born_s(supervisor)


def _above(pid: int) -> list[int]:
    ancestors: list[int] = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        ancestors.append(pid)
    return ancestors


def _is_supervisor(pid: int) -> bool:
    try:
        return b"JobSupervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# --- The number of a node's cores that a process of ours computes with ---


def use_cores(num_processes: int) -> int:
    """Divide the node's cores among that many processes; return the threads of this one.

    Ray gives an actor that asks for no CPU one thread (it sets OMP_NUM_THREADS to 1). Libraries
    read the variable when they are imported; torch is set again when it is loaded already.
    """
    threads = cores_each(num_processes)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return threads


def threads_set_by_user() -> bool:
    """Return whether OMP_NUM_THREADS has a value that Ray would not have set by default."""
    return os.environ.get("OMP_NUM_THREADS", "1") != "1"


def use_all_cores() -> None:
    """Compute with all cores of the node, as a program that a shell starts.

    The driver of a job inherits the one thread that Ray gives to the actor that starts it. A
    value that the user has set stays.
    """
    if threads_set_by_user():
        return
    os.environ.pop("OMP_NUM_THREADS", None)
    set_threads(str(cores_each(1)))
