"""The tree of calls of profiled steps, of a bounded size, from the events of PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from llmops_kernel.metrics.profile import CallTime

MOST_CALLS: Final = 400
LEAST_SHARE: Final = 0.0005
"""Of the whole time: half a pixel of a thousand."""
MICROSECONDS: Final = 1e6
"""Of a second."""
_MOST_NAME: Final = 160
_BACKWARD = "autograd::engine::evaluate_function: "
"""Wraps each operator of a backward pass."""


@dataclass
class _Node:
    name: str
    calls: int = 0
    cpu: float = 0.0
    self_cpu: float = 0.0
    device: float = 0.0
    self_device: float = 0.0
    inside: dict[str, _Node] = field(default_factory=dict)

    def child(self, name: str) -> _Node:
        return self.inside.setdefault(name, _Node(name))

    def weight(self, root: _Node) -> float:
        """Return its share of the time on the processor or on the GPU, whichever is larger."""
        device = self.device / root.device if root.device else 0.0
        return max(self.cpu / root.cpu if root.cpu else 0.0, device)

    def walk(self) -> Iterator[_Node]:
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.inside.values()


def call_tree(events: Iterable[Any], *, on_gpu: bool) -> tuple[CallTime, ...]:
    """Return the calls by name below their callers, the ones with most time of the whole tree.

    `events` are `FunctionEvent`s of PyTorch, times in microseconds. Calls of one name from the same
    chain of callers are one entry. All operators of a backward pass are below `backward`.
    """
    root = _Node("")
    # The nodes are added up from callers to what they call: no recursion, stacks may be deep.
    waiting = [
        (event, root.child(f"thread {event.thread}"))
        for event in events
        if event.cpu_parent is None and _is_call(event)
    ]
    while waiting:
        event, above = waiting.pop()
        is_backward = event.name.startswith(_BACKWARD)
        node = above.child("backward" if is_backward else short_name(event.name))
        node.calls += 1
        node.cpu += event.cpu_time_total
        node.self_cpu += event.self_cpu_time_total
        node.device += event.device_time_total
        node.self_device += event.self_device_time_total
        waiting += [(call, node) for call in event.cpu_children if _is_call(call)]
    for thread in root.inside.values():
        for part in thread.inside.values():
            thread.cpu += part.cpu
            thread.device += part.device
        thread.calls = 1
        root.cpu += thread.cpu
        root.device += thread.device
    return _listed(root, on_gpu=on_gpu)


def _is_call(event: Any) -> bool:
    return "CPU" in str(event.device_type) and not event.is_async


def _listed(root: _Node, *, on_gpu: bool) -> tuple[CallTime, ...]:
    """Return the largest nodes. None is without its caller, whose weight is not smaller."""
    nodes = sorted((node.weight(root) for node in root.walk()), reverse=True)
    least = max(LEAST_SHARE, nodes[MOST_CALLS] if len(nodes) > MOST_CALLS else 0.0)
    rows: list[CallTime] = []
    waiting: list[tuple[_Node, int | None]] = [(node, None) for node in root.inside.values()]
    while waiting:
        node, caller = waiting.pop()
        if node.weight(root) <= least:
            continue
        rows.append(
            CallTime(
                name=node.name,
                caller=caller,
                calls=node.calls,
                cpu_s=_seconds(node.cpu),
                self_cpu_s=_seconds(node.self_cpu),
                device_s=_seconds(node.device) if on_gpu else None,
                self_device_s=_seconds(node.self_device) if on_gpu else None,
            )
        )
        waiting += [(inner, len(rows) - 1) for inner in node.inside.values()]
    return tuple(rows)


def _seconds(microseconds: float) -> float:
    return float(f"{microseconds / MICROSECONDS:.4g}")


def short_name(name: str) -> str:
    """Return a name of a bounded length: templates of kernels have thousands of letters."""
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
