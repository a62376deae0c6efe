"""The public face: light to import, and run handles that need no cluster."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import (
    ClusterNotFoundError,
    ConfigError,
    LLMOpsError,
    RunFailedError,
    RunNotFoundError,
)
from llmops_kernel.metrics.events import EndEvent, EvalEvent, FailureEvent, OutputEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.configs import training_config_from_dict
from tests.jobs.conftest import start, step

HEAVY = ("torch", "ray", "pandas", "httpx", "matplotlib", "pydantic", "IPython")
IMPORT_LIMIT_S = 0.3


def measured_import() -> tuple[float, list[str]]:
    code = (
        "import time, sys, json; began = time.perf_counter(); import llmops_kernel;"
        "took = time.perf_counter() - began;"
        f"print(json.dumps([took, [name for name in {HEAVY!r} if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    took_s, heavy = json.loads(done.stdout)
    return took_s, heavy


def test_importing_the_package_is_quick_and_pulls_in_nothing_heavy():
    measured = [measured_import() for _ in range(5)]
    assert statistics.median(took_s for took_s, _ in measured) < IMPORT_LIMIT_S
    assert [heavy for _, heavy in measured] == [[]] * 5


def test_every_public_name_is_there_and_there_are_few():
    assert len(llmops.__all__) <= 28
    assert all(getattr(llmops, name) is not None for name in llmops.__all__)
    assert dir(llmops) == sorted(llmops.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = llmops.nothing


def test_no_public_function_has_the_name_of_a_subpackage():
    """Importing a subpackage would put a module in the function's place."""
    subpackages = {module.name for module in pkgutil.iter_modules(llmops.__path__)}
    assert not subpackages & set(llmops.__all__)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path))
    return RunStore()


@pytest.fixture
def past_run(store: RunStore):
    """A run whose cluster is long gone."""

    def make(run_id: str, *, state: str = "SUCCEEDED", learning_rate: float = 1e-4) -> llmops.Run:
        config = training_config_from_dict(
            {"model": "tiny-llama", "data": "rows.jsonl"}, {"learning_rate": learning_rate}
        )
        record = RunRecord(
            run_id=run_id,
            name="demo",
            created_s=time.time(),
            cluster="gone",
            config=config.model_dump(mode="json"),
        )
        folder = store.create(record, config_yaml="")
        attempt = Attempt(
            number=1, submission_id=run_id, cluster="gone", dashboard_url="", submitted_s=0
        )
        store.add_attempt(run_id, attempt)
        writer = JournalWriter([folder.journal], stream="1-worker-0", attempt=1)
        writer.emit(start(total_steps=3))
        for number in (1, 2, 3):
            writer.emit(step(number).model_copy(update={"loss": 3.0 / number}))
        writer.emit(
            EvalEvent(step=3, metrics={"eval_loss": 0.9, "accuracy": 0.5}, num_rows=4, duration_s=1)
        )
        if state == "FAILED":
            writer.emit(FailureEvent(error="KeyError", message="no dish", file="hooks.py", line=7))
        else:
            writer.emit(OutputEvent(path=str(folder.output), what="adapter"))
        writer.emit(EndEvent(state=state, last_step=3))
        return llmops.attach(run_id)

    return make


def test_a_run_of_a_cluster_that_is_gone_can_still_be_read(past_run):
    run = past_run("demo-a")
    assert run.state == "SUCCEEDED"
    assert run.config.optimizer.learning_rate == 1e-4
    assert run.output == run.folder.output
    assert run.logs(tail=5) == ""
    assert [event.kind for event in run.events()][-1] == "end"
    metrics = run.metrics()
    assert list(metrics.index) == [1, 2, 3]
    assert metrics["loss"].tolist() == [3.0, 1.5, 1.0]
    assert metrics["mfu"].isna().all()
    assert run.evaluations().loc[3, "accuracy"] == 0.5
    run.stop()
    assert run.state == "SUCCEEDED"
    with pytest.raises(ClusterNotFoundError, match="gone"):
        run.retry()


def test_metrics_of_a_run_without_steps_have_their_columns(store, past_run):
    record = past_run("demo-a").record.model_copy(update={"run_id": "empty-1"})
    store.create(record, config_yaml="")
    metrics = llmops.attach("empty-1").metrics()
    assert metrics.empty
    assert {"loss", "tokens_per_second", "mfu"} <= set(metrics.columns)


def test_waiting_for_a_failed_run_raises_where_the_user_has_to_look(past_run, capsys):
    run = past_run("demo-b", state="FAILED")
    with pytest.raises(RunFailedError, match=r"demo-b failed: no dish \(hooks\.py:7\)"):
        run.wait()
    assert run.wait(raise_on_failure=False) == "FAILED"
    assert "demo-b: Failed, step 3 of 3" in capsys.readouterr().out


def test_an_interrupt_detaches_and_shows_how_to_come_back(past_run, store, capsys):
    run = past_run("demo-a")
    again = run.attempts[0].model_copy(update={"number": 2})
    store.add_attempt(run.id, again)
    assert run.state == "PENDING"
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    assert run.wait(timeout_s=30) == "PENDING"
    assert 'llmops.attach("demo-a").wait()' in capsys.readouterr().out
    assert run.wait(timeout_s=0.1) == "PENDING"


def test_handles_print_short_and_without_secrets(past_run):
    run = past_run("demo-a")
    assert repr(run).startswith("<Run demo-a: Succeeded, step 3 of 3")
    assert "<b>demo-a</b>" in run._repr_html_()
    past_run("demo-b", state="FAILED")
    listed = llmops.runs()
    assert [each.id for each in listed] == ["demo-b", "demo-a"]
    assert "demo-b" in repr(listed)
    assert listed._repr_html_().count("<tr>") == 3
    assert repr(llmops.runs(name="none")) == "no runs yet"


def test_comparison_shows_curves_and_differences(past_run):
    older, newer = past_run("demo-a"), past_run("demo-b", learning_rate=5e-4)
    assert newer.diff(older).text() == older.diff("demo-b").text()
    comparison = llmops.compare(newer, "demo-a")
    assert [run.id for run in comparison.runs] == ["demo-a", "demo-b"]
    assert "optimizer.learning_rate" in comparison.text()
    assert comparison.names["demo-b"] == "lr 5e-4"
    assert "lr 5e-4 (demo-b)" in comparison.text()
    assert comparison.to_png().startswith(b"\x89PNG")
    with pytest.raises(LLMOpsError, match="1 run"):
        llmops.compare(older)


def test_more_than_two_runs_are_one_matrix_then_curves(past_run):
    for number, rate in enumerate([1e-4, 5e-4, 1e-3]):
        past_run(f"demo-{number}", learning_rate=rate)
    compared = llmops.compare("demo-0", "demo-1", "demo-2", base="demo-1")
    assert compared.base.id == "demo-1"
    assert [line.label for line in compared.matrix.lines] == ["lr 1e-4", "lr 5e-4", "lr 1e-3"]
    assert [line.is_base for line in compared.matrix.lines] == [False, True, False]
    assert [(diff.a, diff.b) for diff in compared.diffs] == [
        ("demo-1", "demo-0"),
        ("demo-1", "demo-2"),
    ]
    lines = compared.text().splitlines()
    assert lines[0].split()[:2] == ["run", "lr"]
    assert lines[2].startswith("lr 5e-4 (baseline)")
    with pytest.raises(LLMOpsError, match="demo-2"):
        llmops.compare("demo-0", "demo-1", base="demo-2")


def test_what_is_not_there_is_reported_with_what_is(past_run):
    past_run("demo-a")
    with pytest.raises(RunNotFoundError) as caught:
        llmops.attach("demo-x")
    assert "demo-a" in caught.value.remedy
    with pytest.raises(ClusterNotFoundError) as missing:
        llmops.cluster("nowhere")
    assert "llmops up" in missing.value.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"learning_rat": 1e-4}},
        {"overrides": ["optimizer.learning_rat=1e-4"], "settings": {"lr": 1e-4}},
        {"overrides": {"optimizer.learning_rate": -1}},
    ],
)
def test_a_wrong_change_is_refused_before_the_cluster_is_asked(past_run, changes):
    from llmops_kernel.api.cluster_handle import Cluster
    from llmops_kernel.providers.local.provider import LocalProvider

    settings = changes.pop("settings", {})
    cluster = Cluster("nowhere", provider=LocalProvider())
    data = {"model": "tiny-llama", "data": "rows.jsonl"}
    with pytest.raises(ConfigError, match="learning_rate"):
        cluster.submit(data, **changes, **settings)
