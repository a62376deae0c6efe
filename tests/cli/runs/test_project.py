"""`llmops project`: rules, moves and what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.services.projects.test_projects import scoring, trained


def test_a_project_is_ruled_moved_and_shown(
    llmops: Llmops, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(home)
    trained(store, "a", checkpoints=2)
    trained(store, "b")
    scoring(store, "s-a", "a", 30)
    assert llmops("tag", "a", "--project", "menus") == 0
    rule = ("--scoring", "s-a", "--figure", "exact_match", "--delete-checkpoints", "replaced")
    assert llmops("project", "rule", "menus", "--phase", "candidate", *rule) == 0
    assert llmops("project", "move", "a", "--to", "candidate") == 0
    capsys.readouterr()
    assert llmops("project", "move", "b", "--to", "candidate") == 1  # In no project.
    assert llmops("project", "move", "b", "--to", "candidate", "--project", "menus") == 1
    assert "llmops score scores/toy.score.yaml model.run=b" in capsys.readouterr().err
    force = ("--to", "candidate", "--project", "menus", "--force", "a demo", "--why", "demo")
    assert llmops("project", "move", "b", *force, "--dry-run") == 0
    assert "delete 2 checkpoints of a" in capsys.readouterr().out
    assert len(list((store.folder("a").checkpoints).iterdir())) == 2
    assert llmops("project", "move", "b", *force, "--yes") == 0
    assert not list((store.folder("a").checkpoints).iterdir())
    capsys.readouterr()
    assert llmops("project", "show", "menus", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["phases"]["candidate"] == "b"
    assert [event["kind"] for event in shown["events"]] == ["rule", "move", "move", "action"]
    assert llmops("project", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["runs"] == 2
    assert llmops("project", "show", "menus") == 0
    assert "forced: a demo" in capsys.readouterr().out
    assert llmops("project", "rule", "menus", "--phase", "candidate", "--clear") == 0
    assert llmops("project", "move", "a", "--to", "candidate") == 0
