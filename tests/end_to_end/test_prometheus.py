"""A real Prometheus scrapes a local cluster, and has the numbers of the journal."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.run_gauges import GAUGES, PREFIX, dashboard_text
from llmops_kernel.services.clusters import scrape_configs
from llmops_kernel.store.journal.training_view import TrainingView
from tests.browser.lab import free_port
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.beside]

Ask = Callable[[str], list[dict[str, Any]]]
SCRIPT = """\
import time
from llmops_kernel import track

for step in range(1, 36):
    time.sleep(0.5)
    track.log(reward=step / 10)
    track.step(loss=3.0 / step, tokens=100)
"""


@pytest.fixture
def ask(tmp_path: Path, cluster: llmops.Cluster) -> Iterator[Ask]:
    """Return what asks a Prometheus, which scrapes each second."""
    if shutil.which("prometheus") is None:
        pytest.skip("there is no prometheus here (apt-get install prometheus)")
    config = tmp_path / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1s}\n" + scrape_configs("local"))
    subprocess.run(["promtool", "check", "config", config], check=True, capture_output=True)
    port = free_port()
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )

    def answer(query: str) -> list[dict[str, Any]]:
        answered = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": query})
        if answered.status_code == 503:
            return []  # It is starting.
        assert answered.status_code == 200, answered.text
        result: list[dict[str, Any]] = answered.json()["data"]["result"]
        return result

    try:
        yield answer
    finally:
        process.terminate()
        process.wait(30)


def is_listening(ask: Ask) -> bool:
    try:
        return bool(ask("up == 1"))
    except httpx.HTTPError:
        return False


def newest(ask: Ask, gauge: str, run: llmops.Run, label: str = "") -> dict[str, float]:
    """Return the newest values of a gauge by its own label."""
    series = ask(f'last_over_time({PREFIX}{gauge}{{run="{run.id}"}}[5m])')
    return {each["metric"].get(label, ""): float(each["value"][1]) for each in series}


def test_prometheus_has_the_numbers_of_a_training(
    ask: Ask, submit: Callable[..., llmops.Run]
) -> None:
    until(lambda: is_listening(ask))
    run = submit(
        training={"max_steps": 40}, evaluation={"every_steps": 20}, data={"eval": "rows.jsonl"}
    )
    run.wait(240)
    until(lambda: newest(ask, "llmops_run_state", run, "state").get("SUCCEEDED") == 1)
    assert newest(ask, "llmops_run_state", run, "state")["RUNNING"] == 0
    metrics = run.metrics()
    for gauge, column in {
        "llmops_run_loss": "loss",
        "llmops_run_learning_rate": "learning_rate",
        "llmops_run_grad_norm": "grad_norm",
        "llmops_run_tokens_per_second": "tokens_per_second",
        "llmops_run_mfu_ratio": "mfu",
        "llmops_run_step_time_seconds": "step_time_s",
    }.items():
        shown = newest(ask, gauge, run)
        if metrics[column].isna().all():
            assert shown == {}, gauge
            continue
        # Ray hands a gauge on every second or two, in which a tiny model makes many steps: the last
        # ones of a process may be left out.
        of_steps = [pytest.approx(value, rel=1e-9) for value in metrics[column][-20:]]
        assert shown[""] in of_steps, gauge
    # Beside other work the peak of a CPU is not known, and no MFU.
    unknown = {"llmops_run_mfu_ratio"} if metrics["mfu"].isna().all() else set()
    assert newest(ask, "llmops_run_step", run)[""] in range(21, 41)
    assert newest(ask, "llmops_run_total_steps", run)[""] == 40
    evaluated = newest(ask, "llmops_run_evaluation", run, "metric")
    view = run.view
    assert isinstance(view, TrainingView)
    of_evaluations = [pytest.approx(each.metrics["eval_loss"]) for each in view.evals]
    assert evaluated["eval_loss"] in of_evaluations
    assert set(newest(ask, "llmops_run_warm_start", run, "role")) == {"driver", "worker"}
    the_dashboard_shows(ask, run, unknown=unknown)
    # Ray forgets a gauge 20 s after its process: series of ended runs are no burden.
    series = f'count({{__name__=~"{PREFIX}llmops_.*", run="{run.id}"}})'
    until(lambda: not ask(series))


def the_dashboard_shows(ask: Ask, run: llmops.Run, *, unknown: set[str]) -> None:
    """Check that each panel's query is valid, and that those of a training have values."""
    values = {}
    for panel in json.loads(dashboard_text())["panels"]:
        query = panel["targets"][0]["expr"]
        for label in ("cluster", "user", "kind", "name"):
            query = query.replace(f"${label}", ".*")
        name = query.split("{")[0].split("(")[-1]
        selected = query.replace("{", f'{{run="{run.id}",', 1)
        selected = selected.removesuffix(" == 1")
        values[name] = ask(f"max_over_time(({selected})[5m:1s])")
        ask(query)
    of_training = {f"{PREFIX}{gauge.name}" for gauge in GAUGES if gauge.field}
    of_gpus = {"llmops_run_peak_memory_bytes"}
    of_training -= {f"{PREFIX}{name}" for name in of_gpus | unknown}
    assert all(values[name] for name in of_training & values.keys())
    assert all(
        math.isfinite(float(each["value"][1])) for series in values.values() for each in series
    )


def test_prometheus_has_the_numbers_of_a_plain_script(
    ask: Ask, cluster: llmops.Cluster, tmp_path: Path
) -> None:
    until(lambda: is_listening(ask))
    script = tmp_path / "script" / "plain.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    run = cluster.submit(script)
    run.wait(120)
    until(lambda: newest(ask, "llmops_run_state", run, "state").get("SUCCEEDED") == 1)
    assert newest(ask, "llmops_run_loss", run)[""] == pytest.approx(3.0 / 35)
    assert newest(ask, "llmops_run_value", run, "metric") == {"reward": 3.5}
