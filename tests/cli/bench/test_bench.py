"""`llmops bench loop`: its order, its table, its usage; and once for real."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmops_kernel.cli.bench import loop_table
from llmops_kernel.views.bench_figures import LoopFigures, Measured
from tests.benchmarks.presets import Preset, write_workspace
from tests.cli.conftest import Llmops, process

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import ClusterInfo


def test_the_table_has_phases_medians_and_the_ratio() -> None:
    from rich.console import Console

    runs = [
        Measured(kind="warm", first_step_s=4.0, phases={"process_group": 4.0}),
        Measured(kind="cold", first_step_s=16.0, phases={"process_group": 16.0}),
    ]
    shown = io.StringIO()
    Console(width=120, file=shown).print(loop_table(LoopFigures.of(runs)))
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert "process group 4.0 s 16.0 s" in lines
    assert "submit to first step 4.0 s 16.0 s" in lines
    assert "cold / warm 4.00" in lines


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such.train.yaml"],
        [__file__, "--runs", "0"],
        [__file__, "--warm-only", "--cold-only"],
    ],
)
def test_wrong_usage_starts_nothing(arguments: list[str], llmops: Llmops, home: Path) -> None:
    assert llmops("bench", "loop", *arguments) == 2
    assert not home.exists()


@pytest.mark.parametrize("change", ["parallelism.num_workers=0", "training.nothing=1"])
def test_a_wrong_change_starts_nothing(
    change: str, llmops: Llmops, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_workspace(Preset.TINY, tmp_path)
    assert llmops("bench", "loop", str(config), change) == 1
    assert change.partition("=")[0] in " ".join(capsys.readouterr().err.split())
    assert not home.exists()


def test_help_says_which_way_round_the_ratio_is(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("bench", "loop", "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the cold median / the warm median" in shown
    assert "Example: llmops bench loop" in shown


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.slow
def test_both_kinds_are_measured(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    config = write_workspace(Preset.TINY, tmp_path)
    cluster = ("--cluster", ray_cluster.name)
    change = "training.max_steps=2"
    done = process("bench", "loop", str(config), change, "--runs", "1", "--json", *cluster)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert sorted(reported) == ["cold", "ratio", "warm"]
    for kind in ("warm", "cold"):
        assert sorted(reported[kind]) == ["median_s", "phases", "runs_s"]
        assert reported[kind]["runs_s"] == [reported[kind]["median_s"]]
        assert sum(reported[kind]["phases"].values()) == pytest.approx(
            reported[kind]["median_s"], abs=0.02
        )
    assert reported["ratio"] == pytest.approx(
        reported["cold"]["median_s"] / reported["warm"]["median_s"], rel=0.01
    )
    # Far from what is aimed at; a machine that is busy with other things slows both.
    assert reported["ratio"] > 1, done.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_that_fails_ends_the_bench_with_its_reason(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    config = write_workspace(Preset.TINY, tmp_path)
    (tmp_path / "hooks.py").write_text("def format_example(row):\n    raise KeyError('dish')\n")
    change = "hooks.file=hooks.py"
    cluster = ("--cluster", ray_cluster.name)
    done = process("bench", "loop", str(config), change, *cluster, "--warm-only", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)  # One document.
    assert answer["warm"]["runs_s"] == []
    assert "dish" in answer["error"]["message"]
    assert "of the benchmark (warm) FAILED" in done.stderr
    assert "Try:" in done.stderr


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_prints_what_there_is(
    number: signal.Signals, ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    config = write_workspace(Preset.TINY, tmp_path)
    bench = subprocess.Popen(
        [
            *(sys.executable, "-m", "llmops_kernel.cli.main", "bench", "loop", str(config)),
            *("training.max_steps=100000", "--cluster", ray_cluster.name, "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        run_id = _running(bench)
        bench.send_signal(number)
        printed, error = bench.communicate(timeout=60)
    finally:
        if bench.poll() is None:  # A run that is left behind would disturb all later tests.
            bench.terminate()
            bench.wait(60)
    assert bench.returncode == 130, error
    assert json.loads(printed)["ratio"] is None
    assert f"stopping {run_id}" in error
    waited = process("wait", run_id, "--json", "--timeout", "90")
    assert json.loads(waited.stdout)["state"] == "STOPPED"


def _running(bench: subprocess.Popen[str]) -> str:
    """Waits for the first run to make steps."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s and bench.poll() is None:
        (newest,) = json.loads(process("runs", "--all", "--limit", "1", "--json").stdout) or [None]
        if newest and newest["run_id"].startswith("bench-tiny") and newest["state"] == "RUNNING":
            return str(newest["run_id"])
        time.sleep(0.5)
    pytest.fail("the bench's run did not start")
