"""What `--json` prints, errors too, is valid against the schema of `llmops schema --of`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

from llmops_kernel.cli.app import app
from llmops_kernel.cli.outputs import OUTPUTS, output_schema
from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.server.runs import make_run, worker
from tests.tiny_training import write_training

CALLS = (
    ("ls", ()),
    ("show", ("toy-1",)),
    ("wait", ("toy-1",)),
    ("logs", ("toy-1",)),
    ("samples", ("toy-1",)),
    ("compare", ("toy-1", "toy-2")),
    ("diff", ("toy-1", "toy-2")),
    ("stalled", ("toy-1",)),
    ("stop", ("toy-1",)),
    ("runs", ()),
    ("runs", ("--columns", "loss,user")),
    ("note", ("toy-1", "lower")),
    ("tag", ("toy-1", "best")),
    ("query", ("select run, loss from steps",)),
    ("check", ("tiny.train.yaml", "--quick")),
    ("plan", ("tiny.train.yaml",)),
    ("project list", ()),
    ("schedule list", ()),
    ("gc", ("--dry-run",)),
    ("version", ()),
)


@pytest.fixture
def workspace(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a config, and two runs in the home."""
    store = RunStore(home)
    first = make_run(store, "toy-1", steps=3, created_s=1.0)
    (first / "logs").mkdir()
    (first / "logs" / "driver-1.log").write_text("step 1\n")
    make_run(store, "toy-2", steps=3, created_s=2.0, learning_rate=2e-4)
    writer = worker(store, "toy-1")
    sample = {"row": "1", "prompt": "a", "prediction": "b", "reference": "c"}
    writer.emit(EvalEvent(step=3, metrics={"eval_loss": 0.5}, samples=(sample,)))
    writer.close()
    store.annotate("toy-1", project="menus")
    folder = write_training(tmp_path / "workspace", "tiny").parent
    monkeypatch.chdir(folder)
    return folder


def commands_with_json() -> Iterator[str]:
    def walk(group: Any, path: tuple[str, ...]) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, (*path, name))
            elif any("--json" in each.opts for each in command.params):
                yield " ".join((*path, name))

    yield from walk(typer.main.get_command(app), ())


def test_every_command_with_json_has_a_schema() -> None:
    assert sorted(commands_with_json()) == sorted(set(OUTPUTS) - {"error"})
    for name in OUTPUTS:
        jsonschema.Draft202012Validator.check_schema(output_schema(name))


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_what_is_printed_is_valid(
    command: str,
    arguments: tuple[str, ...],
    workspace: Path,
    llmops: Llmops,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert llmops(*command.split(), *arguments, "--json") == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), output_schema(command))


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (("show", "no-such-run"), "RunNotFoundError", 1),
        (("status", "nowhere"), "ClusterNotFoundError", 1),
        (("query", "select nothing"), "QueryError", 1),
        (("plan", "wrong.train.yaml"), "ConfigError", 1),
        (("wait", "--no-such-option"), "UsageError", 2),
        (("compare", "toy-1"), "UsageError", 2),
    ],
)
def test_an_error_is_printed_as_json_with_the_same_exit_code(
    arguments: tuple[str, ...],
    kind: str,
    code: int,
    workspace: Path,
    llmops: Llmops,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (workspace / "wrong.train.yaml").write_text("modle: tiny-llama\n")
    assert llmops(*arguments) == code
    assert capsys.readouterr().out == ""
    assert llmops(*arguments, "--json") == code
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, output_schema("error"))
    assert answer["error"]["kind"] == kind
    assert bool(answer["error"]["problems"]) == (kind == "ConfigError")


def test_the_schema_command_prints_it(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("schema", "--of", "llmops cluster diff") == 0
    assert json.loads(capsys.readouterr().out) == output_schema("cluster diff")
    assert llmops("schema", "--of", "rn") == 1
