"""A run's journal does not decide which addresses this machine asks with its credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import RunStateError
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.services.scoring.model import trained_model
from llmops_kernel.services.scoring.runs import output_url
from llmops_kernel.store.outputs import check_reported
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run, worker


def record(url: str = "") -> RunRecord:
    config = {"output": {"url": url}} if url else {}
    return RunRecord(run_id="r-1", name="r", created_s=0.0, cluster="c", config=config)


def attempt(run_storage: str | None) -> Attempt:
    facts: dict[str, Any] = {"cluster": "c", "dashboard_url": "", "submitted_s": 0.0}
    return Attempt(number=1, submission_id="r-1-1", run_storage=run_storage, **facts)


@pytest.mark.parametrize(
    ("url", "configured", "storage"),
    [
        ("s3://mine/out", "s3://mine/out", ""),
        ("s3://mine/out/r-1/part", "s3://mine/out/", ""),
        (
            "s3://mine/x?endpoint_override=mine.example",
            "s3://mine/x?endpoint_override=mine.example",
            "",
        ),
        ("gs://team/runs/r-1/output", "", "gs://team/runs"),
        ("gs://team/runs/r-1/output", "", "gs://team/runs/"),
        ("s3://team/runs/r-1/output", "", None),
        ("/data/runs/r-1/output", "", ""),
    ],
)
def test_what_the_config_or_the_template_names_is_read(
    url: str, configured: str, storage: str | None
) -> None:
    check_reported(url, record(configured), [attempt(storage)])


@pytest.mark.parametrize(
    ("url", "configured", "storage"),
    [
        ("s3://mine/out?endpoint_override=evil.example", "s3://mine/out", ""),
        ("s3://mine/out/x?endpoint_override=evil.example", "s3://mine/out", ""),
        ("s3://mine/out-of-others", "s3://mine/out", ""),
        ("s3://mine/out/../secret", "s3://mine/out", ""),
        ("s3://evil/out", "s3://mine/out", ""),
        ("gs://team/runs/r-2/output", "", "gs://team/runs"),
        ("http://10.0.0.1/admin", "", ""),
        ("webhdfs://10.0.0.1/x", "", ""),
        ("simplecache::http://10.0.0.1/x", "s3://mine/out", ""),
        ("http://10.0.0.1/r-1/x", "", None),
        ("s3://evil/r-1/x?endpoint_override=evil.example", "", None),
        ("s3://user:pass@evil/r-1", "", None),
        ("s3://evil/other", "", None),
    ],
)
def test_what_only_the_journal_names_is_not(url: str, configured: str, storage: str | None) -> None:
    with pytest.raises(RunStateError, match="it is not read") as caught:
        check_reported(url, record(configured), [attempt(storage)])
    assert repr(url) in caught.value.message
    assert caught.value.remedy


def test_the_scorer_and_the_comparison_ask(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    make_run(store, "r-1", steps=1, ended=None, config={"model": {"id": "m"}})
    journal = worker(store, "r-1")
    journal.emit(OutputEvent(path="http://10.0.0.1/adapter", what="adapter"))
    journal.close()
    with pytest.raises(RunStateError, match="it is not read"):
        trained_model("r-1", store)
    with pytest.raises(RunStateError, match="it is not read"):
        output_url(store, store.record("r-1"))
