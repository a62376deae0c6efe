"""Runs of each kind once more from their records: equal, and the data file that was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo
from tests.cli.conftest import call
from tests.end_to_end.script_runs import succeeded, write
from tests.tiny_training import write_rows, write_training

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

SCRIPT = """
    import torch
    from llmops_kernel import track

    torch.manual_seed(7)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, 6):
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        track.step(loss=loss, tokens=8)
"""
SCORE = {
    "name": "answers",
    "model": "tiny-llama",
    "input": {"path": "rows.jsonl"},
    "prompt": {"template": "{text}", "reference": "text"},
    "sampling": {"max_tokens": 8, "temperature": 0.7},
    "engine": {"type": "transformers", "keep_s": 20, "batch_size": 4},
    "output": {"part_rows": 8},
    "evaluation": {"metrics": ["exact_match"]},
}


@pytest.fixture
def cluster(ray_cluster: ClusterInfo) -> llmops.Cluster:
    return llmops.cluster(ray_cluster.name)


def test_runs_of_each_kind_are_equal_although_the_workspace_has_changed(
    cluster: llmops.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"eval": "rows.jsonl", "max_eval_rows": 4}
    result = tmp_path / "result"
    config = write_training(tmp_path / "training", "tiny", data=data, output={"url": str(result)})
    script = write(tmp_path / "training", SCRIPT)
    scoring = config.with_name("answers.score.yaml")
    scoring.write_text(json.dumps(SCORE))
    runs = [succeeded(cluster.submit(path)) for path in (config, script)]
    runs.append(succeeded(cluster.score(scoring)))
    # Code and data are those that were submitted, whatever has become of them since.
    script.write_text("raise SystemExit(1)")
    write_rows(config.parent, count=8)
    for run, rows in zip(runs, (3, 5, 64), strict=True):
        answer = run.reproduce()
        assert answer.is_equal, answer.text
        assert (answer.compared.num_rows, answer.changes) == (rows, ())
        again = llmops.attach(answer.by)
        assert again.record.reproduces == run.id
        assert again.record.files == run.record.files
        assert run.output is None or again.output != run.output  # It has replaced no result.
        assert "reproduction" in again.notes.tags
        inputs = again.view.inputs
        assert inputs is not None
        assert "instructions" in inputs.machine or "cpu" in inputs.machine
        assert "torch" in inputs.versions
    capsys.readouterr()
    assert call("reproduce", runs[0].id, "--against", answer.by) == 2
    assert "of one kind" in capsys.readouterr().err


def test_a_changed_data_file_is_named_before_and_after(
    cluster: llmops.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    write_rows(far)
    rows = far / "rows.jsonl"
    config = write_training(tmp_path / "training", "tiny", data={"train": str(rows)})
    run = succeeded(cluster.submit(config))
    rows.write_text(rows.read_text().replace("follows", "trails"))
    assert call("reproduce", run.id) == 1
    shown = capsys.readouterr()
    assert f"changed data: {rows}" in shown.err
    assert "differs at step 1 (0 steps before it are equal)" in shown.out
    assert f"1. changed data: {rows}" in shown.out
    rows.unlink()
    assert call("reproduce", run.id) == 2
