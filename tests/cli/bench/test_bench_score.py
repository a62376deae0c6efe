"""`llmops bench score` and `llmops bench plan`: usage; and once for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmops_kernel.services.score_bench import save
from tests.cli.conftest import Llmops, process
from tests.views.score_bench.test_figures import figures

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import ClusterInfo

CONFIG = """\
name: echo
model: tiny-llama
input: rows.jsonl
prompt: "{text}"
engine: {type: transformers, max_model_len: 64}
sampling: {max_tokens: 4}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rows = "".join(json.dumps({"text": f"row {i}"}) + "\n" for i in range(16))
    (tmp_path / "rows.jsonl").write_text(rows)
    path = tmp_path / "echo.score.yaml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch-sizes", "1,x"],
        ["--batch-sizes", "0"],
        ["--replicas", ""],
        ["--runs", "0"],
        ["--png", "no/such/folder/x.png"],
    ],
)
def test_wrong_usage_starts_nothing(
    arguments: list[str], config: Path, llmops: Llmops, home: Path
) -> None:
    assert llmops("bench", "score", str(config), *arguments) == 2
    assert not home.exists()


def test_a_plan_of_the_newest_result(
    llmops: Llmops, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("bench", "plan", "1000") == 1
    assert "llmops bench score FILE" in capsys.readouterr().err
    save(figures(num_gpus=4))
    assert llmops("bench", "plan", "1000000", "--price-per-hour", "2", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["unit"] == "GPU"
    assert plan["lines"][0]["money"] == pytest.approx(4 * 50_000 / 3600)
    assert llmops("bench", "plan", "1000000") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "GPU-hours" in shown
    assert "no price was given" in shown


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.slow
def test_sizes_are_measured_and_planned_with(
    ray_cluster: ClusterInfo, config: Path, tmp_path: Path
) -> None:
    png = tmp_path / "score.png"
    sizes = ("--batch-sizes", "2,4", "--runs", "1", "--rows", "8", "--cluster", ray_cluster.name)
    done = process("bench", "score", str(config), *sizes, "--json", "--png", str(png))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [point["batch_size"] for point in found["points"]] == [2, 4]
    assert all(point["output_tokens_per_second"] > 0 for point in found["points"])
    assert found["setting"]["rows"] == 8
    assert found["knees"] == {"1": None}  # Of two points.
    assert png.read_bytes().startswith(b"\x89PNG")
    planned = process("bench", "plan", "100000", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["lines"][0]["wall_s"] > 0
