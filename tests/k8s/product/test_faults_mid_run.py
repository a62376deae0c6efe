"""A real training whose API server goes away, or whose head pod is killed: no line is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import StepEvent
from tests.k8s.product.test_end_to_end import config, farm
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.tiny_training import slow_hooks
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]
__all__ = ["config", "farm"]
AWAY_S = 30.0
STEPS, STEP_S = 66, 0.8
"""Long enough to keep training while the API server is away."""


@pytest.fixture
def run(farm: Farm, config: Path) -> llmops.Run:
    (config.parent / "hooks.py").write_text(slow_hooks(STEP_S))
    cluster = llmops.up("kind-cpu").wait(timeout_s=400)
    run = cluster.submit(config, overrides=[f"training.max_steps={STEPS}"])
    until(lambda: steps(run) >= 5, timeout_s=400)
    return run


def steps(run: llmops.Run) -> int:
    return run.view.last_step or 0


def gaps(run: llmops.Run) -> list[str]:
    """Streams whose numbers are not 1, 2, 3 ..."""
    streams: dict[str, list[int]] = {}
    for event in run.events():
        streams.setdefault(event.stream, []).append(event.seq)
    return [name for name, seqs in streams.items() if sorted(seqs) != [*range(1, len(seqs) + 1)]]


def test_an_api_server_that_is_away_for_half_a_minute(run: llmops.Run, standin: StandIn) -> None:
    record = run.record
    standin.fault("away", seconds=AWAY_S)
    gone_s = time.monotonic()
    time.sleep(3)
    before, shown, slowest_s = steps(run), set(), 0.0
    while time.monotonic() - gone_s < AWAY_S - 5:
        asked_s = time.monotonic()
        state = run.state
        info = llmops.cluster("kind-cpu").info
        slowest_s = max(slowest_s, time.monotonic() - asked_s)
        shown.add((state, re.sub(r"[0-9]+ s old", "N s old", info.message)))
        time.sleep(1)
    assert {state for state, _ in shown} == {"RUNNING"}
    old = [message for _, message in shown if message.startswith("Last known state, N s old: ")]
    assert any("API server" in message for message in old), shown
    assert slowest_s < 6
    assert steps(run) == before
    assert run.wait(400) == "SUCCEEDED", run.logs()[-3000:]
    assert list(run.metrics().index) == list(range(1, STEPS + 1))
    assert gaps(run) == []
    assert run.record == record


@pytest.mark.beside
def test_a_head_pod_that_is_killed(run: llmops.Run, farm: Farm, namespace: str) -> None:
    record = run.record
    seen = [event.step for event in run.events() if isinstance(event, StepEvent)]
    head = next(p for p in farm.pods(namespace) if "head" in p["metadata"]["name"])
    farm.kill_pod(head["metadata"]["name"], namespace=namespace)
    until(lambda: run.state == "FAILED", timeout_s=400)
    # What the user reads: what happened, where it was, that nothing read so far is lost.
    assert "kind-cpu" in run.view.message
    assert "step" in run.view.message
    assert "kept here" in run.view.message
    assert run.view.remedy
    known = [event.step for event in run.events() if isinstance(event, StepEvent)]
    assert known[: len(seen)] == seen
    assert known == [*range(1, len(known) + 1)]
    assert gaps(run) == []
    assert run.record == record
    # The operator creates another head; the cluster becomes usable without help.
    cluster = llmops.cluster("kind-cpu")
    assert cluster.wait(timeout_s=400).info.is_ready
    assert cluster.jobs() == []
    assert run.record == record
