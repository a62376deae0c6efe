"""`%%train` and `%llmops` in a real IPython shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from llmops_kernel.magics.train import MagicError

Captured = pytest.CaptureFixture[str]


def run(shell: InteractiveShell, code: str, captured: Captured) -> str:
    """Run a cell that succeeds; return what it printed."""
    assert shell.run_cell(code).success, captured.readouterr()
    return captured.readouterr().out


def fail(shell: InteractiveShell, code: str, captured: Captured) -> str:
    """Run a cell that fails; return what it printed."""
    result = shell.run_cell(code)
    assert isinstance(result.error_in_exec, MagicError), result
    return captured.readouterr().out


def test_a_cell_with_yaml_is_a_whole_config(shell: InteractiveShell, capsys: Captured) -> None:
    text = Path("a.train.yaml").read_text()
    shown = run(shell, f"%%train --dry-run training.max_steps=5\n{text}", capsys)
    assert "Trains tiny-llama" in shown
    assert "5 steps" in shown


@pytest.mark.parametrize(
    "cell",
    [
        "%%train a.train.yaml --dry-run\n# a comment\nlearning_rate=0.5\ntraining.max_steps=7\n",
        "%%train a.train.yaml --dry-run\noptimizer:\n  learning_rate: 0.5\nmax_steps: 7",
        "%train a.train.yaml learning_rate=0.5 training.max_steps=7 --dry-run",
        "%%train a.train.yaml --dry-run\nlearning_rate=$rate\nmax_steps=$steps\ndata.eval=null",
        "%train a.train.yaml learning_rate=0.5 max_steps=$steps --dry-run",
    ],
)
def test_a_file_is_changed_by_a_line_or_a_cell(
    cell: str, shell: InteractiveShell, capsys: Captured
) -> None:
    shell.user_ns.update(steps=7, rate=0.5)
    shown = run(shell, cell, capsys)
    assert "7 steps" in shown
    assert "learning rate 0.5" in shown
    assert "Global batch size 2" in shown


@pytest.mark.parametrize(
    ("cell", "message", "remedy"),
    [
        ("%%train a.train.yaml\nlearning_rat=1", "learning_rat: unknown field", "llmops init"),
        ("%%train\nmodel: tiny-llama\nsed: 1", "this cell:2: sed: unknown key", "llmops init"),
        ("%%train\nmodel: [", "this cell", "llmops init"),
        ("%%train\nlearning_rate=1", "names no config", "%%train lora.train.yaml"),
        ("%train", "nothing to train", "%train lora.train.yaml"),
        ("%train no.train.yaml", "did you mean a.train.yaml?", "llmops init"),
        ("%train a.train.yaml --cluster far", "There is no cluster 'far'", "llmops up far"),
        ("%train a.train.yaml --nope", "unrecognized arguments: --nope", "--help"),
        ("%train a.train.yaml --as 1x", "'1x' cannot be the name", "--as my_run"),
        ('%train "a.train.yaml', "no closing quotation", "close the quotation mark"),
        ("%llmops show nope", "Run 'nope' not found", "llmops submit"),
    ],
)
def test_an_error_is_a_message_and_a_remedy_without_a_traceback(
    cell: str, message: str, remedy: str, shell: InteractiveShell, capsys: Captured
) -> None:
    shown = fail(shell, cell, capsys)
    assert message in shown
    assert f"Try: {remedy}" in shown or remedy in shown.partition("Try:")[2]
    assert "Traceback" not in shown
    assert ".py" not in shown.replace("a.train.yaml", "")


def test_llmops_runs_a_command_and_fails_as_it_does(
    shell: InteractiveShell, capsys: Captured
) -> None:
    checked = run(shell, "%llmops check a.train.yaml --json", capsys)
    assert json.loads(checked)["valid"] is True
    assert "is valid" in run(shell, "%llmops check a.train.yaml", capsys)
    Path("a.train.yaml").write_text("sed: 1")
    assert "llmops check: exit code 1" in fail(shell, "%llmops check a.train.yaml", capsys)
    assert "exit code 2" in fail(shell, "%llmops check --nope a.train.yaml", capsys)
    assert "submit" in run(shell, "%llmops", capsys)


def test_help_shows_both_forms(shell: InteractiveShell, capsys: Captured) -> None:
    shown = run(shell, "%train --help", capsys)
    for words in ("%%train lora.train.yaml", "KEY=VALUE", "--cluster", "--wait", "--dry-run"):
        assert words in shown
    assert "Usage: llmops submit" in " ".join(run(shell, "%llmops submit --help", capsys).split())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%%train ", {"a.train.yaml"}),
        ("%train a.tr", {"a.train.yaml"}),
        ("%%train a.train.yaml --cl", {"--cluster"}),
        ("%%train a.train.yaml --cluster lo", {"local"}),
        ("%llmops sub", {"submit"}),
        ("%llmops submit --fo", {"--follow"}),
        ("%llmops wait ", {"last"}),
        ("%llmops submit a.train.yaml --cluster lo", {"local"}),
        ("%llmops init --example cont", {"continued-pretraining"}),
        ("%llmops cluster ren", {"render"}),
    ],
)
def test_names_are_completed(line: str, found: set[str], shell: InteractiveShell) -> None:
    _, matches = shell.complete("", line, len(line))
    assert found <= set(matches)


def test_they_can_be_unloaded(shell: InteractiveShell, capsys: Captured) -> None:
    run(shell, "%unload_ext llmops_kernel", capsys)
    assert not shell.run_cell("%train --help").success
    assert not shell.run_cell("%llmops --help").success
    run(shell, "%load_ext llmops_kernel", capsys)
    assert "usage" in run(shell, "%train --help", capsys)
