"""The engines that score runs leave loaded on the cluster, and how other runs get their GPUs."""

from __future__ import annotations

import time
from typing import Any

NAMESPACE = "llmops-engines"
_ANSWER_S = 5.0
_GONE_S = 15.0
_COUNTED_S = 3.0
_LOOK_S = 0.1


def standing() -> dict[str, Any]:
    """Return the actors of all engines on the cluster, by name."""
    import ray

    found = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["namespace"] == NAMESPACE:
            try:
                found[entry["name"]] = ray.get_actor(entry["name"], namespace=NAMESPACE)
            except ValueError:  # It has left meanwhile.
                continue
    return found


def free_idle() -> int:
    """End the engines that have no work; return how many left, once their resources are free."""
    import ray

    engines, before = standing(), _gpus()
    calls = [engine.leave.remote(only_idle=True) for engine in engines.values()]
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=_ANSWER_S) if calls else ([], [])
    left = sum(_says_yes(call) for call in done)
    until_s = time.monotonic() + _GONE_S
    while left and len(standing()) > len(engines) - left and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    # Ray counts what has become free a moment later.
    counted_s = time.monotonic() + _COUNTED_S
    while left and _gpus() <= before and time.monotonic() < counted_s:
        time.sleep(_LOOK_S)
    return left


def _gpus() -> float:
    import ray

    return float(ray.available_resources().get("GPU", 0))


def _says_yes(call: Any) -> bool:
    import ray

    try:
        return bool(ray.get(call))
    except ray.exceptions.RayError:  # It left before it could answer.
        return True
