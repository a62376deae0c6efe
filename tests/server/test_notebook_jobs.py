"""jupyter-scheduler's own REST routes, which Lab's page *Notebook Jobs* uses, over schedules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from llmops_kernel.services.schedules import ScheduleStore
from llmops_kernel.store.store import RunStore
from tests.server.conftest import Fetch
from tests.services.schedules.repository import commit, init, printed, write_notebook

BESIDE = Path(__file__).parents[2] / ".venv/notebook-jobs"
"""Where `make notebook-jobs` puts it."""
pytestmark = pytest.mark.skipif(not BESIDE.is_dir(), reason="make notebook-jobs")


@pytest.fixture
def jp_root_dir(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = init(tmp_path / "user")
    write_notebook(folder / "daily.ipynb", "word = 'none'", "print('too early', word)")
    commit(folder)
    monkeypatch.chdir(folder)  # As `jupyter lab` does; downloads go below it.
    return folder


@pytest.fixture
def jp_server_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.syspath_prepend(str(BESIDE))
    backend = "llmops_kernel.server.notebook_jobs.ScheduleBackend"
    return Config(
        {
            "ServerApp": {"jpserver_extensions": {"jupyter_scheduler": True}},
            "SchedulerApp": {"scheduler_class": backend, "db_url": f"sqlite:///{tmp_path}/db"},
        }
    )


async def ask(
    raw: Fetch, headers: dict[str, str], path: str, method: str = "GET", **body: Any
) -> Any:
    options: dict[str, Any] = {"headers": headers, "method": method}
    if method in ("POST", "PATCH"):
        options["body"] = json.dumps(body)
    answer = await raw(f"scheduler/{path}", **options)
    found = json.loads(answer.body) if answer.body else {}
    return found if answer.code < 400 else (answer.code, found["message"])


async def test_the_page_creates_lists_runs_and_pauses_schedules(
    raw: Fetch, jp_auth_header: dict[str, str], jp_root_dir: Path
) -> None:
    wanted = {
        "name": "Nightly Report",
        "input_uri": "daily.ipynb",
        "runtime_environment_name": "python",
        "output_formats": ["ipynb"],
        "parameters": {"word": "well"},
        "schedule": "0 2 * * *",
        "timezone": "Europe/Berlin",
    }
    write_notebook(jp_root_dir / "daily.ipynb", "word = 'none'", "print('ran', word)")
    code, message = await ask(raw, jp_auth_header, "job_definitions", "POST", **wanted)
    assert code == 500
    assert "not committed. Try: " in message
    revision = commit(jp_root_dir)
    made = await ask(raw, jp_auth_header, "job_definitions", "POST", **wanted)
    definition = made["job_definition_id"]
    listed = await ask(raw, jp_auth_header, "job_definitions")
    assert [(each["name"], each["tags"]) for each in listed["job_definitions"]] == [
        ("nightly-report", ["branch main"])
    ]
    await ask(raw, jp_auth_header, f"job_definitions/{definition}", "PATCH", active=False)
    store = ScheduleStore(RunStore())
    assert store.load("nightly-report").paused

    job = (await ask(raw, jp_auth_header, f"job_definitions/{definition}/jobs", "POST"))["job_id"]
    async with asyncio.timeout(90):
        while (state := await ask(raw, jp_auth_header, f"jobs/{job}"))["status"] == "IN_PROGRESS":
            await asyncio.sleep(0.2)
    assert state["status"] == "COMPLETED", state
    assert state["tags"][0] == f"revision {revision}"
    assert state["name"] == f"nightly-report {revision[:7]}"
    (firing,) = store.load("nightly-report").firings
    assert printed(firing.output or "") == "ran well\n"

    assert (await ask(raw, jp_auth_header, "jobs?sort_by=desc(create_time)"))["total_count"] == 1
    assert (await ask(raw, jp_auth_header, "jobs/count?status=completed"))["count"] == 1
    await ask(raw, jp_auth_header, f"jobs/{job}/download_files")
    async with asyncio.timeout(60):
        while not (await ask(raw, jp_auth_header, f"jobs/{job}"))["downloaded"]:
            await asyncio.sleep(0.2)
    await ask(raw, jp_auth_header, f"jobs/{job}", "DELETE")
    await ask(raw, jp_auth_header, f"job_definitions/{definition}", "DELETE")
    assert store.names() == []


async def test_a_job_that_has_failed_says_why_and_where_its_cells_are(
    raw: Fetch, jp_auth_header: dict[str, str], jp_root_dir: Path
) -> None:
    write_notebook(jp_root_dir / "daily.ipynb", "word = 'none'", "raise ValueError('no table')")
    commit(jp_root_dir)
    wanted = {
        "name": "once",
        "input_uri": "daily.ipynb",
        "runtime_environment_name": "python",
        "output_formats": ["ipynb"],
    }
    job = (await ask(raw, jp_auth_header, "jobs", "POST", **wanted))["job_id"]
    async with asyncio.timeout(90):
        while (state := await ask(raw, jp_auth_header, f"jobs/{job}"))["status"] == "IN_PROGRESS":
            await asyncio.sleep(0.2)
    assert state["status"] == "FAILED", state
    (firing,) = ScheduleStore(RunStore()).load("once").firings
    assert state["status_message"] == f"ValueError: no table; the cells are in {firing.output}"
