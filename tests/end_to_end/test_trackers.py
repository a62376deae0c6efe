"""Runs of each kind report to a tracker beside their journal, from a process of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.driver.report import PYTHON_ENV_VAR
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.paths import home
from llmops_kernel.train.measure.device import PEAK_ENV_VAR
from tests.end_to_end.conftest import at_step, processes
from tests.end_to_end.script_runs import succeeded, write
from tests.tiny_training import slow_hooks, write_rows, write_training
from tests.trackers.real import environment as env
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside]
SCRIPT = """\
    from llmops_kernel import track

    track.start(total_steps=5)
    for n in range(1, 6):
        track.step(loss=1 / n)
"""


@pytest.fixture(scope="module")
def tracked() -> Iterator[llmops.Cluster]:
    """A cluster whose trackers' packages are in a Python of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PYTHON_ENV_VAR, env.python())
        patch.setenv(PEAK_ENV_VAR, "10")  # Beside other work the peak of a CPU is not known.
        provider = LocalProvider()
        info = provider.up(ClusterTemplate(name="tracked"), progress=print)
        yield llmops.cluster(info.name)
        provider.down("tracked")
        assert senders() == []  # They end with their cluster.


def senders() -> list[psutil.Process]:
    return processes("llmops_kernel.trackers.process")


def sent(run: llmops.Run) -> dict[str, Any]:
    """Return what TensorBoard's reader finds once the run's end is there."""
    folder = home() / "trackers" / "tensorboard" / run.id
    until(lambda: any(b"run/state" in path.read_bytes() for path in folder.glob("*.llmops")))
    return env.read_back("tensorboard", home(), RUN=run.id)


def curve(found: dict[str, Any], name: str) -> list[tuple[int, float]]:
    return sorted((step, value) for tag, step, value in found["points"] if tag == name)


def test_a_training_whose_sender_is_killed(tracked: llmops.Cluster, tmp_path: Path) -> None:
    config = write_training(
        tmp_path / "workspace",
        "tiny",
        hooks=slow_hooks(0.3),
        training={"max_steps": 30},
        data={"eval": "rows.jsonl"},
        report_to=["tensorboard", "wandb"],
    )
    run = tracked.submit(config)
    (sender,) = until(senders)
    until(at_step(run, 10))
    sender.kill()
    run.wait()
    found = sent(run)
    sent_steps, losses = zip(*curve(found, "train/loss"), strict=True)
    assert list(sent_steps) == list(range(1, 31))
    assert losses == pytest.approx([event.loss for event in run.view.steps], rel=1e-6)
    assert len(curve(found, "train/mfu")) == 30
    assert len(curve(found, "eval/loss")) == len(run.view.evaluations) > 0
    assert found["texts"]["run/state"] == "SUCCEEDED"
    assert f"| run_id | {run.id} |" in found["texts"]["run"]
    assert run.record.code_hash in found["texts"]["run"]
    assert "tensorboard" in [event.name for event in run.view.trackers]


def test_a_script(tracked: llmops.Cluster, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT)
    (tmp_path / "five.script.yaml").write_text("script: train.py\nreport_to: tensorboard\n")
    run = succeeded(tracked.submit(tmp_path / "five.script.yaml"))
    expected = [(n, pytest.approx(1 / n)) for n in range(1, 6)]
    assert curve(sent(run), "train/loss") == expected


def test_a_scoring(tracked: llmops.Cluster, tmp_path: Path) -> None:
    write_rows(tmp_path, count=8)
    config = {
        "model": "tiny-llama",
        "input": "rows.jsonl",
        "prompt": {"template": "{text}", "chat": False},
        "task": {"type": "logprob"},
        "engine": {"type": "transformers"},
        "evaluation": {"metrics": ["perplexity"]},
        "report_to": ["tensorboard"],
    }
    (tmp_path / "rows.score.yaml").write_text(json.dumps(config))
    run = succeeded(tracked.submit(tmp_path / "rows.score.yaml"))
    ((rows, perplexity),) = curve(sent(run), "score/perplexity")
    metrics = run.view.evaluations[-1].metrics
    assert (rows, perplexity) == (8, pytest.approx(metrics["perplexity"], rel=1e-6))
