"""Objects that are not what the API promises: nothing raises, and no number comes from nowhere."""

from __future__ import annotations

import copy
import random
import re
import time
from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.providers.kuberay.api.errors import refusal
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.waiting.reasons import waiting
from tests.providers.kuberay.observations import (
    head,
    node,
    observation,
    pod,
    pod_event,
    raycluster,
    unscheduled,
)
from tests.providers.kuberay.waiting.test_queue import CASES as QUEUE_CASES
from tests.providers.kuberay.waiting.test_reasons import CASES

WORLDS = [case[0] for case in (*CASES.values(), *QUEUE_CASES.values())]
ODD: list[Any] = [
    None, True, False, 0, -1, 7, 10**400, 0.5, float("nan"), float("inf"), "", "x", "8", "1e999",
    "600Gi", "-3", "0x1", "2026-11-21T02:06:10Z", "9999-99-99", [], [None], [[]], {}, {"": 1},
    {"name": None}, {1: 2}, [{"name": ["a"]}],
]  # fmt: skip


def broken(obj: Any, rng: random.Random) -> Any:
    """A copy in which some values, at any depth, are of another kind or missing."""
    if rng.random() < 0.07:
        return copy.deepcopy(rng.choice(ODD))
    if isinstance(obj, dict):
        return {key: broken(value, rng) for key, value in obj.items() if rng.random() > 0.05}
    if isinstance(obj, list | tuple):
        return type(obj)(broken(value, rng) for value in obj)
    return obj


def broken_objects(seen: ClusterObservation, rng: random.Random) -> ClusterObservation:
    """The fields keep their kind: they are ours. What is in them comes from the API."""
    changes: dict[str, Any] = {}
    for item in fields(seen):
        value = getattr(seen, item.name)
        if (
            item.name in ("now_s", "denied", "silent", "ray_answers", "logs", "computed_reasons")
            or value is None
        ):
            continue
        if isinstance(value, tuple):
            odd = [broken(obj, rng) for obj in value]
            changes[item.name] = tuple(obj for obj in odd if isinstance(obj, dict))
        else:
            odd_one = broken(value, rng)
            changes[item.name] = odd_one if isinstance(odd_one, dict) else {}
    return replace(seen, computed_reasons={}, **changes)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(WORLDS), st.integers(0, 2**32))
def test_nothing_raises(seen: ClusterObservation, seed: int) -> None:
    found = waiting(broken_objects(seen, random.Random(seed)))
    assert all(reason.message for reason in found)


POD = {"metadata": {"name": "w", "labels": {"ray.io/node-type": "worker", "ray.io/group": "g"}}}
CLUSTER = {
    "metadata": {"name": "c", "generation": 1},
    "spec": {"workerGroupSpecs": [{"groupName": "g", "replicas": 1}]},
    "status": {"observedGeneration": 1},
}
NO_NUMBERS = st.characters(exclude_categories=("N",))


@given(st.text(alphabet=NO_NUMBERS, max_size=60))
def test_without_numbers_in_what_was_seen_there_are_none_in_what_is_reported(message: str) -> None:
    reported = {"type": "PodScheduled", "status": "False", "message": message}
    pod = POD | {"status": {"phase": "Pending", "conditions": [reported]}}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "?", "pods": None}}}
    found = waiting(ClusterObservation(CLUSTER, 1e9, pods=(pod,), nodes=(node,), node_pods=None))
    numbers = {number for reason in found for number in re.findall(r"\d+", reason.message)}
    assert numbers <= {"1"}  # 1 of 1 worker


@given(st.text(max_size=200) | st.just("exceeded quota: a, requested: b, used: , limited:"))
def test_no_text_of_a_refusal_raises(message: str) -> None:
    found = refusal(message)
    assert found is None or found.message


def test_a_thousand_waiting_workers_are_one_sentence_and_little_work() -> None:
    pods = [head(), *(unscheduled(f"w{i}") for i in range(1000))]
    used = [pod(f"x{i}", node=f"n{i}", asks={"nvidia.com/gpu": "1"}) for i in range(300)]
    given = observation(
        raycluster(replicas=1000),
        pods=pods,
        nodes=[node(f"n{i}") for i in range(300)],
        node_pods=used,
        events=[pod_event("FailedScheduling", "no", name=f"w{i % 1000}") for i in range(5000)],
    )
    begun_s = time.process_time()
    (found,) = waiting(given)
    assert time.process_time() - begun_s < 2
    assert found.message == (
        "1000 of 1000 workers wait: no node has 8 free nvidia.com/gpu (the best, n0, has 7 of 8)"
    )
