"""Moves of runs through the phases of a project: rules, what happens on a move, two writers."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import RunStateError, StoreError
from llmops_kernel.metrics.events import CheckpointEvent, EndEvent
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.project_rule import verdict_of
from llmops_kernel.services.projects import Project, projects, set_project
from llmops_kernel.services.run_list import list_rows
from llmops_kernel.store.projects import PhaseRule, ProjectEvent, append_event, read_projects
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.query import Query
from llmops_kernel.views.score_comparison import MetricChange
from tests.server.runs import make_run, worker
from tests.services.scoring.outputs import scored, write_output


@pytest.fixture
def project(store: RunStore) -> Project:
    return Project(Backend(store=store, providers=list), "menus")


def trained(store: RunStore, run_id: str, *, checkpoints: int = 0) -> Path:
    """A training that has ended with a whole result, and with checkpoints."""
    root = make_run(store, run_id)
    for folder in ("output", *(f"checkpoints/step-{step}" for step in range(1, checkpoints + 1))):
        (root / folder).mkdir(parents=True)
        (root / folder / "adapter_config.json").write_text("{}")
        (root / folder / "adapter_model.safetensors").write_bytes(b"weights")
    return root


def scoring(store: RunStore, run_id: str, of_run: str, hits: int) -> None:
    """A scoring of 40 rows by the config `toy`, of which the first `hits` are right."""
    config: dict[str, Any] = {"model": {"run": of_run}, "input": {"path": "rows.jsonl", "key": ""}}
    root = make_run(store, run_id, kind="score", config=config, config_path="scores/toy.score.yaml")
    rows = [scored(i, "a", metric_exact_match=float(i < hits)) for i in range(40)]
    write_output(root / "output", rows)


CHANGE = MetricChange("exact_match", 0.8, 0.75, -0.05, low=-0.09, high=-0.01, rows=40)


@pytest.mark.parametrize(
    ("change", "margin", "passed"),
    [
        ({"better": "higher"}, None, False),
        ({"better": "higher"}, 0.1, True),
        ({"better": "higher"}, 0.08, False),
        ({"better": "higher", "high": 0.01}, None, True),
        ({"better": "lower"}, None, True),
        ({"better": "lower", "delta": 0.05, "low": 0.01, "high": 0.09}, None, False),
        ({"better": "higher", "low": None, "high": None}, None, False),
        ({"better": "higher", "low": None, "high": None, "delta": 0.0}, None, True),
        ({"better": None}, None, False),
        ({"better": "higher", "delta": None}, None, False),
    ],
)
def test_not_worse_is_decided_by_the_interval(
    change: dict[str, Any], margin: float | None, passed: bool
) -> None:
    rule = PhaseRule(scoring="toy", figure="exact_match", margin=margin)
    assert verdict_of(rule, replace(CHANGE, **change)).passed is passed


def test_a_rule_compares_scores_and_names_the_command_for_those_that_are_missing(
    store: RunStore, project: Project
) -> None:
    project.rule("candidate", scoring="toy", figure="exact_match")
    for run_id in ("a", "b", "c"):
        make_run(store, run_id)
    with pytest.raises(RunStateError) as raised:
        project.move("a", "candidate")
    assert "model.run=a" in raised.value.remedy
    scoring(store, "s-a", "a", 30)
    assert project.move("a", "candidate").replaced == ""
    with pytest.raises(RunStateError) as raised:
        project.move("b", "candidate")
    assert raised.value.remedy == "llmops score scores/toy.score.yaml model.run=b"
    scoring(store, "s-b", "b", 5)
    with pytest.raises(RunStateError, match=r"0\.75 -> 0\.125"):
        project.move("b", "candidate")
    assert project.phases == {"prototype": None, "candidate": "a", "released": None}
    scoring(store, "s-c", "c", 32)
    assert project.move("c", "candidate", why="more data").replaced == "a"
    project.move("b", "candidate", force="a demo")
    moves = [event for event in project.state.events if event.kind == "move"]
    assert [(m.run, m.replaced, m.why, m.forced) for m in moves] == [
        ("a", "", "", ""),
        ("c", "a", "more data", ""),
        ("b", "c", "", "a demo"),
    ]
    assert all(move.user and move.host and move.check for move in moves)
    store.delete("b")
    store.delete("s-b")
    deleted = project.plan("c", "candidate").check
    assert (deleted.passed, "--force" in deleted.remedy) == (False, True)
    # Rules with an unknown figure pass for nobody.
    project.rule("candidate", figure="rouge9")
    assert not project.plan("c", "candidate").check.passed


def test_a_run_has_one_phase_which_lists_show(store: RunStore, project: Project) -> None:
    make_run(store, "a")
    project.move("a", "prototype")
    project.move("a", "released")
    assert project.phases == {"prototype": None, "candidate": None, "released": "a"}
    rows = list_rows(store, Query(where="project == 'menus' and phase == 'released'")).rows
    assert [row.run_id for row in rows] == ["a"]
    with pytest.raises(RunStateError):
        project.move("a", "released")
    with pytest.raises(RunStateError):
        set_project(Backend(store=store), "a", "other")
    project.move("a", "none")
    assert (store.notes("a").project, store.notes("a").phase) == ("menus", "")
    set_project(Backend(store=store), "a", "other")
    with pytest.raises(RunStateError, match="in project other"):
        project.move("a", "candidate")
    names = [each.name for each in projects(Backend(store=store, providers=list))]
    assert names == ["menus", "other"]


@pytest.mark.parametrize(
    ("phase", "changes"),
    [
        ("shipped", {}),
        ("released", {"scoring": "toy"}),
        ("released", {"export": "hub"}),
        ("released", {"margin": -1}),
        ("released", {"delete_checkpoints": "all"}),
        ("released", {"gate": True}),
    ],
)
def test_rules_that_mean_nothing_are_refused(
    project: Project, phase: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(StoreError):
        project.rule(phase, **changes)
    assert project.state.events == []


def test_a_move_exports_first_and_deletes_last(
    store: RunStore, project: Project, tmp_path: Path
) -> None:
    old, new = trained(store, "old", checkpoints=3), trained(store, "new", checkpoints=1)
    journal = worker(store, "old", attempt=2)
    journal.emit(CheckpointEvent(step=2, path=str(old / "checkpoints/step-2")))
    journal.emit(EndEvent(state="SUCCEEDED", last_step=3))
    journal.close()
    begun = {"model": {"run": "old", "step": 2, "id": "elsewhere"}}
    make_run(store, "child", config=begun)
    make_run(store, "reader", config={"model": {"id": str(old / "checkpoints" / "step-3")}})
    project.move("old", "released")
    project.rule(
        "released",
        archive=True,
        export="vllm",
        export_path=str(tmp_path),
        delete_checkpoints="replaced",
    )
    plan = project.plan("new", "released")
    assert [path.name for path in plan.checkpoints.folders] == ["step-1"]  # type: ignore[union-attr]
    assert len(plan.checkpoints.kept) == 2  # type: ignore[union-attr]

    def failing(*_: Any, **__: Any) -> None:
        raise StoreError("no space", remedy="free some")

    with pytest.raises(StoreError, match="no space"):
        project.move("new", "released", do_export=failing)
    assert project.phases["released"] == "old"
    assert (old / "checkpoints" / "step-1").is_dir()
    exports: list[Any] = []
    project.move("new", "released", do_export=lambda run, to, **_: exports.append((run.id, to)))
    assert [(run, to.to, to.path) for run, to in exports] == [
        ("new", "vllm", str(tmp_path / "new-vllm"))
    ]
    assert sorted(path.name for path in (old / "checkpoints").iterdir()) == ["step-2", "step-3"]
    assert (new / "checkpoints" / "step-1").is_dir()
    assert store.notes("old").tags == ("archived",)
    assert "by new" in store.notes("old").note
    assert len([event for event in project.state.events if event.kind == "action"]) == 3


@pytest.mark.parametrize("why", ["no result", "running", "starred", "in another phase"])
def test_checkpoints_that_something_needs_stay(store: RunStore, project: Project, why: str) -> None:
    project.rule("candidate", delete_checkpoints="moved")
    if why == "running":
        root = make_run(store, "a", ended=None)
        (root / "checkpoints" / "step-1").mkdir(parents=True)
    else:
        root = trained(store, "a", checkpoints=1)
    if why == "no result":
        (root / "output" / "adapter_model.safetensors").unlink()
    if why == "starred":
        store.annotate("a", starred=True)
    if why == "in another phase":
        event = ProjectEvent(kind="move", project="other", phase="released", time_s=1.0, run="a")
        append_event(store.root, event)
    plan = project.plan("a", "candidate")
    assert plan.checkpoints is not None
    assert plan.checkpoints.folders == ()
    assert len(plan.checkpoints.kept) == 1
    project.move("a", "candidate")
    assert (root / "checkpoints" / "step-1").is_dir()


def test_of_two_who_move_at_once_one_is_refused(store: RunStore, project: Project) -> None:
    for number in range(6):
        make_run(store, f"r{number}")
    barrier, results = threading.Barrier(6), []

    def move(run_id: str) -> None:
        own = Project(Backend(store=store), "menus")
        plan = own.plan(run_id, "released")
        own.plan = lambda *_: plan  # type: ignore[method-assign]
        barrier.wait()
        try:
            own.move(run_id, "released")
            results.append(run_id)
        except RunStateError:
            results.append("")

    threads = [threading.Thread(target=move, args=(f"r{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = max(results)
    assert sorted(results) == ["", "", "", "", "", winner]
    assert project.phases["released"] == winner


def test_a_line_that_was_cut_short_loses_only_itself(store: RunStore, project: Project) -> None:
    make_run(store, "a")
    make_run(store, "b")
    project.move("a", "prototype")
    with (store.root / "projects.jsonl").open("a") as file:
        file.write('{"kind": "move", "project": "men')
    project.move("b", "candidate")
    assert read_projects(store.root)["menus"].phase_of("b") == "candidate"
    assert project.phases == {"prototype": "a", "candidate": "b", "released": None}
