"""The engines that score runs leave loaded on the cluster, and how other runs get their GPUs."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from llmops_kernel.store.engine_names import NAMESPACE

_ANSWER_S = 5.0
_LEAVE_S = 15.0
_COUNTED_S = 3.0
_POLL_S = 0.1


def standing() -> dict[str, Any]:
    """Return the actors of all engines on the cluster, by name."""
    import ray

    actors = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["namespace"] == NAMESPACE:
            try:
                actors[entry["name"]] = ray.get_actor(entry["name"], namespace=NAMESPACE)
            except ValueError:  # It has left meanwhile.
                continue
    return actors


def free_idle() -> int:
    """End the engines that have no work; return how many left, once their resources are free."""
    before = _gpus()
    num_ended = len(end_idle().ended)
    # Ray counts what has become free a moment later.
    counted_s = time.monotonic() + _COUNTED_S
    while num_ended and _gpus() <= before and time.monotonic() < counted_s:
        time.sleep(_POLL_S)
    return num_ended


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Names of the actors of engines."""

    ended: tuple[str, ...]
    busy: tuple[str, ...]
    """They have work, or did not answer."""


def end_idle() -> Ended:
    """End the engines that have no work, and wait until they have left."""
    import ray

    calls = {engine.leave.remote(only_idle=True): name for name, engine in standing().items()}
    waited = list(calls)
    done, _ = ray.wait(waited, num_returns=len(calls), timeout=_ANSWER_S) if calls else ([], [])
    ended = {calls[call] for call in done if says_yes(call)}
    until_s = time.monotonic() + _LEAVE_S
    while ended & standing().keys() and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    busy = set(calls.values()) - ended
    return Ended(ended=tuple(sorted(ended)), busy=tuple(sorted(busy)))


def _gpus() -> float:
    import ray

    return float(ray.available_resources().get("GPU", 0))


def says_yes(call: Any) -> bool:
    """Return what an engine answers when it is asked to leave; it may do so before it answers."""
    import ray

    try:
        return bool(ray.get(call))
    except ray.exceptions.RayError:
        return True


def main() -> None:
    import ray

    ray.init(log_to_driver=False, configure_logging=False)
    print(json.dumps(asdict(end_idle())), flush=True)


if __name__ == "__main__":
    main()
