"""Several replicas of an engine work on one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops
from tests.score.conftest import numbered, output_of, table_of
from tests.waiting import until

Score = Callable[..., llmops.Run]
pytestmark = pytest.mark.ray


def test_two_share_the_work_and_what_one_had_when_it_was_killed_is_done_again(
    score: Score, tmp_path: Path
) -> None:
    rows = numbered(2000)
    rows[700]["text"] = f"[crash:{tmp_path}/once] it is killed once"
    settings = {"engine.replicas": 2, "engine.options": {"step_s": 0.05}}
    run = score(rows, **settings)
    shares = ("replica 0", "replica 1")
    until(lambda: all(_rate(run, one) > 0 for one in shares) or run.has_ended)
    run.wait(120)
    assert (tmp_path / "once").exists()
    found = table_of(output_of(run))
    assert [row["id"] for row in found] == [f"r{n}" for n in range(2000)]
    assert all(row["output"] == row["text"] for row in found)
    assert set(run.view.members) == set(shares)
    assert all(_rate(run, one) > 0 for one in shares)


def _rate(run: llmops.Run, replica: str) -> float:
    return run.view.members.get(replica, {}).get("rows_per_second", 0.0)


def test_one_that_cannot_load_is_left_out_with_one_warning(score: Score, tmp_path: Path) -> None:
    options = {"step_s": 0.05, "only": str(tmp_path / "there is one")}
    run = score(numbered(1500), **{"engine.replicas": 2, "engine.options": options})
    run.wait(120)
    assert len(table_of(output_of(run))) == 1500
    (warning,) = run.view.warnings
    assert "of the engine was left out: the engine does not fit beside" in warning.message
    assert warning.remedy == "use fewer replicas"


@pytest.mark.slow
def test_a_further_one_is_started_while_there_is_work(score: Score) -> None:
    settings = {"engine.replicas": 1, "engine.max_replicas": 2, "output.part_rows": 50}
    run = score(numbered(20_000), **settings, **{"engine.options": {"step_s": 0.1}})
    until(lambda: set(run.view.members) == {"replica 0", "replica 1"} or run.has_ended)
    assert not run.has_ended
    run.stop()
    run.wait(60, raise_on_failure=False)
    assert run.view.state == "STOPPED"
    assert not run.view.warnings


def test_a_run_whose_engine_refuses_all_rows_ends_early(score: Score, tmp_path: Path) -> None:
    reason = "the adapter /a is of another base model (b), not of this one"
    settings = {"engine.options": {"refuses": reason, "step_s": 0.05}, "engine.keep_s": 1}
    run = score(numbered(20_000), **settings, **{"output.url": str(tmp_path / "out")})
    run.wait(120, raise_on_failure=False)
    assert run.view.state == "FAILED"
    assert "rows could be scored, all for one reason: the adapter /a is of" in run.view.message
    assert run.view.remedy.startswith("name an adapter of this model in model.adapter")
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    rows = table_of(tmp_path / "out")
    assert 200 <= len(rows) < 5000
    assert {row["error"] for row in rows} == {reason}
    other = score(numbered(20_000), **{"output.url": str(tmp_path / "out")})
    other.wait(120, raise_on_failure=False)
    assert f"has the rows of run {run.id}" in other.view.message
    assert "output.url" in other.view.remedy
