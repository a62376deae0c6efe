"""An agent trains the tiny model on a local cluster, within its budget, and is killed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo
from tests.agents.client import NAME, Agent, connected, talk
from tests.tiny_training import slow_hooks, write_training

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside]
_SHORT = ["training.max_steps=4"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    config = write_training(
        tmp_path / "workspace", "tiny", hooks=slow_hooks(0.5), training={"max_steps": 400}
    )
    return config.parent


def test_submit_wait_curve_compare_and_stop(ray_cluster: ClusterInfo, workspace: Path) -> None:
    flags = ("--allow", "submit", "--allow", "stop", "--cluster", ray_cluster.name, "--runs", "3")
    first, second = talk(workspace, *flags, story=_loop)
    run, long = llmops.attach(first), llmops.attach(second)
    assert run.state == "SUCCEEDED"
    assert long.wait(300, raise_on_failure=False) == "STOPPED"
    assert run.record.agent is not None
    assert (run.record.agent.name, run.record.agent.reason) == (NAME, "the baseline")
    assert [act.action for act in long.acts] == ["submit", "stop", "retry", "stop"]
    assert [attempt.number for attempt in long.attempts] == [1, 2]
    # A person's reproduction is not the agent's, and takes nothing of its budget.
    used = _used()
    reproduced = run.reproduce()
    assert reproduced.is_equal, reproduced.text
    assert llmops.attach(reproduced.by).record.agent is None
    assert _used() == used


async def _loop(agent: Agent) -> tuple[str, str]:
    cluster = (await agent.call("budget"))["clusters"][0]
    file = {"config": "tiny.train.yaml", "cluster": cluster}
    first = await agent.call("submit", **file, overrides=_SHORT, reason="the baseline")
    assert first["runs_left"] == 2
    assert (await _ended(agent, first["run"]))["state"] == "SUCCEEDED"
    curve = await agent.call("curve", run=first["run"])
    assert [point["x"] for point in curve["points"]] == [1, 2, 3, 4]
    second = await agent.call(
        "resubmit",
        run=first["run"],
        overrides=["training.max_steps=400", "optimizer.learning_rate=1e-3"],
        reason="a higher rate",
    )
    news = await agent.call("wait", run=second["run"], until_step=2, timeout_s=300)
    while "step" not in news["news"]:
        assert not news["has_ended"], news
        news = await agent.call("wait", run=second["run"], seen=news["seen"], until_step=2)
    stopped = await agent.call("stop", run=second["run"], reason="the loss is no better")
    assert stopped["done"] == "stopping"
    assert (await _ended(agent, second["run"]))["state"] == "STOPPED"
    retried = await agent.call("retry", run=second["run"], reason="once more")
    assert (retried["done"], retried["runs_left"]) == ("retried", 0)
    await agent.call("stop", run=second["run"], reason="enough")
    compared = await agent.call("compare_runs", runs=[first["run"], second["run"]])
    paths = {change["path"] for change in compared["differences"][0]["config"]}
    assert "optimizer.learning_rate" in paths
    return first["run"], second["run"]


def test_up_and_down(workspace: Path) -> None:
    flags = ("--allow", "clusters", "--allow", "submit", "--cluster", "local", "--runs", "99")

    async def story(agent: Agent) -> str:
        up = await agent.call("up", reason="for the night")
        assert (up["done"], up["cluster"], up["state"]) == ("up", "local", "ready")
        assert (await agent.call("queue", cluster="local"))["runs"] == []
        file = {"config": "tiny.train.yaml", "cluster": "local", "overrides": _SHORT}
        run = (await agent.call("submit", **file, reason="a try"))["run"]
        assert (await _ended(agent, run))["state"] == "SUCCEEDED"
        down = await agent.call("down", name="local", reason="the night is over")
        assert (down["done"], down["cluster"]) == ("down", "local")
        return str(run)

    run = talk(workspace, *flags, story=story)
    assert llmops.attach(run).state == "SUCCEEDED"
    left = {str(each.info.state) for each in llmops.clusters() if each.name == "local"}
    assert "ready" not in left


async def _ended(agent: Agent, run: str) -> dict[str, Any]:
    news = await agent.call("wait", run=run, timeout_s=300)
    while not news["has_ended"]:
        news = await agent.call("wait", run=run, seen=news["seen"], timeout_s=300)
    return news


def test_fifty_submissions_at_once_hold_the_budget_and_survive_their_client(
    ray_cluster: ClusterInfo, workspace: Path
) -> None:
    use = llmops.cluster(ray_cluster.name)
    before = {run.id for run in use.runs(limit=None)}
    budget = ("--runs", str(5 + _used()))
    flags = ("--allow", "submit", "--cluster", ray_cluster.name, *budget)

    async def killed() -> Counter[str]:
        async with connected(workspace, *flags) as agent:
            calls = [
                agent.session.call_tool(
                    "submit",
                    {"config": "tiny.train.yaml", "cluster": use.name, "reason": f"try {n}"},
                )
                for n in range(50)
            ]
            results = await asyncio.gather(*calls)
            return Counter("refused" if result.is_error else "submitted" for result in results)

    assert asyncio.run(killed()) == {"submitted": 5, "refused": 45}
    runs = [run for run in use.runs(limit=None) if run.id not in before]
    try:
        assert len(runs) == 5
        # The client and its server are gone.
        assert {run.state for run in runs} <= {"PENDING", "QUEUED", "RUNNING"}
    finally:
        for run in runs:
            run.stop()
        for run in runs:
            run.wait(300, raise_on_failure=False)
    assert {run.state for run in runs} == {"STOPPED"}


def _used() -> int:
    from llmops_kernel.agents.ledger import Ledger
    from llmops_kernel.services.backend import current

    return Ledger(current().store).use().runs
