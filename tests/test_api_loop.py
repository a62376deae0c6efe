"""The loop on a real cluster with the tiny model: submit, wait, look, change, stop, retry."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import PhaseEvent, WarningEvent
from llmops_kernel.providers.protocol import ClusterInfo
from tests.costs import assert_costs_one_node
from tests.tiny_training import write_training
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]

HOOK = "print('this is hook {number}')\n\ndef format_example(row):\n    return row\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_training(
        tmp_path,
        "loop",
        hooks=HOOK.format(number=1),
        method="full",
        training={"max_steps": 6},
        checkpoint={"every_steps": 4},
    )


def test_submit_change_stop_and_retry(ray_cluster: ClusterInfo, config: Path):
    cluster = llmops.cluster(ray_cluster.name)
    first = cluster.submit(config)
    assert first.wait(180) == "SUCCEEDED"
    assert list(first.metrics().index) == [1, 2, 3, 4, 5, 6]
    assert first.metrics()["loss"].notna().all()
    assert first.output is not None
    assert Path(first.output).is_dir()
    assert "this is hook 1" in first.logs()

    # One changed line of code and one changed number; only the code is new to the cluster.
    (config.parent / "hooks.py").write_text(HOOK.format(number=2))
    second = first.resubmit(learning_rate=5e-5, overrides=["training.max_steps=5000"])
    reported = [
        e.detail for e in second.events() if isinstance(e, PhaseEvent) and e.name == "upload"
    ]
    assert reported[-1].startswith("code sent")
    assert "assets reused" in reported[-1]
    assert second.record.parent == first.id
    difference = second.diff(first)
    assert ("optimizer.learning_rate", 2e-4, 5e-5) in difference.config
    assert [change.path for change in difference.code] == ["hooks.py"]

    _stop_and_retry(second)
    assert [run.id for run in cluster.runs()][:2] == [second.id, first.id]


def test_a_warm_up_longer_than_the_run_is_a_warning_in_the_journal(
    ray_cluster: ClusterInfo, config: Path
):
    run = llmops.cluster(ray_cluster.name).submit(config, max_steps=2, warmup_steps=5)
    assert run.wait(180) == "SUCCEEDED"
    reported = [event.message for event in run.events() if isinstance(event, WarningEvent)]
    assert any(
        "5 warm-up steps do not fit into a run of max_steps=2: 1 are used" in m for m in reported
    )


def _stop_and_retry(run: llmops.Run) -> None:
    until(lambda: (run.view.last_step or 0) >= 5)
    assert "this is hook 2" in run.logs()
    with pytest.raises(llmops.LLMOpsError, match="RUNNING"):
        run.retry()
    run.stop()
    assert run.state in ("STOPPING", "STOPPED")
    assert run.wait(120) == "STOPPED"
    saved = run.view.checkpoints[-1].step
    assert saved == run.view.last_step

    run.retry()
    assert run.state == "PENDING"
    until(lambda: (run.view.last_step or 0) > saved)
    view = run.view
    assert (view.attempt, view.start and view.start.first_step) == (2, saved + 1)
    run.stop()
    assert run.wait(120) == "STOPPED"
    steps = run.metrics().index
    assert list(steps) == list(range(1, len(steps) + 1))
    assert_costs_one_node(run)
