"""Help, examples, exit codes and errors of the command line."""

from __future__ import annotations

import itertools
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from llmops_kernel.cli.app import EXAMPLES, app
from llmops_kernel.cli.console import out, print_hanging, show_error, show_unexpected
from llmops_kernel.cli.main import main
from llmops_kernel.errors import ConfigError
from tests.cli.conftest import Llmops, process

COMMANDS = (
    *("up", "down", "ls", "status"),
    *("suspend", "resume", "scale", "delete", "keep", "cluster", "engines"),
    *("submit", "wait", "logs", "compare", "diff", "stop", "retry", "resubmit", "runs", "show"),
    *("query", "sweep", "rerun", "reproduce", "queue", "project", "schedule"),
    *("star", "note", "tag", "rm", "score", "samples", "export", "chat", "report"),
    *("stalled", "profile"),
    *("init", "schema", "check", "data", "mine", "plan", "metrics"),
    *("doctor", "demo", "bench", "score-env", "gc", "version", "mcp"),
)
HEAVY = ("torch", "ray", "transformers", "pandas", "matplotlib", "httpx", "IPython", "pydantic")


def test_these_are_the_commands() -> None:
    assert sorted(EXAMPLES) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_in_full_lines(
    command: str,
    llmops: Llmops,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert llmops(command, "--help") == 0
    shown = capsys.readouterr().out
    assert f"Example: {EXAMPLES[command]}" in " ".join(shown.split())
    text = shown.partition("╭")[0].splitlines()
    for line, following in itertools.pairwise(text):
        if line.strip() and following.strip():
            assert len(f"{line.rstrip()} {following.split()[0]}") > 78, line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_a_command_line_that_is_understood(command: str) -> None:
    words = shlex.split(EXAMPLES[command].split(">")[0])
    assert words[:2] == ["llmops", command]
    group = typer.main.get_command(app)
    with group.make_context("llmops", words[1:]) as context:
        found = group.get_command(context, command)  # type: ignore[attr-defined]
        found.make_context(command, words[2:], parent=context)


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from llmops_kernel.cli.main import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    took_s = []
    for _ in range(3):
        began_s = child_processor_s()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        took_s.append(child_processor_s() - began_s)
    assert "LOADED []" in done.stdout
    # Processor time, so that a busy machine does not matter; 0.3 s on a quiet one.
    assert min(took_s) < 0.7


def child_processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_our_errors_are_reported_without_a_traceback(home: Path) -> None:
    done = process("show", "no-such-run")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no-such-run" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_remedy_is_reported(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("status", "nowhere") == 1
    error = capsys.readouterr().err
    assert "nowhere" in error
    assert "Try: llmops up" in error


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["wait", "--no-such-option"], ["compare", "last"]]
)
def test_wrong_usage_ends_with_two(arguments: list[str], llmops: Llmops) -> None:
    assert llmops(*arguments) == 2


def test_an_unexpected_error_is_one_line_and_a_saved_traceback(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLMOPS_DEBUG", raising=False)
    try:
        raise ValueError("first line\nsecond line")
    except ValueError as error:
        show_unexpected(error)
    reported = capsys.readouterr().err
    assert "Unexpected error: ValueError: first line" in reported
    assert "Traceback" not in reported
    (saved,) = (home / "logs").glob("llmops-*.log")
    assert str(saved) in reported
    assert "second line" in saved.read_text()
    assert "test_main.py" in saved.read_text()


def test_debug_shows_the_traceback(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMOPS_DEBUG", "1")
    try:
        raise ValueError("what happened")
    except ValueError as error:
        show_unexpected(error)
    assert "Traceback" in capsys.readouterr().err
    assert not (home / "logs").exists()


def test_version_names_the_parts(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    from llmops_kernel import __version__

    assert llmops("version") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"llmops-kernel {__version__}" in lines
    assert any(line.startswith("ray 2.") for line in lines)


@pytest.mark.parametrize("words", [["-m", "llmops_kernel"], ["-m", "llmops_kernel.cli.main"]])
def test_version_is_an_option_too(words: list[str]) -> None:
    from llmops_kernel import __version__

    done = subprocess.run([sys.executable, *words, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"llmops {__version__}\n")


def test_main_takes_its_arguments_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["llmops", "no-such-command"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2


def test_a_terminal_breaks_lines_between_words_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is longer than a line stays whole; doctor's lines hang below their text."""
    monkeypatch.setenv("TERM", "dumb")  # 80 columns.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    words = [f"word{number}" for number in range(40)]
    path = f"/{'deep/' * 30}x.yaml"
    show_error(ConfigError(" ".join(words), remedy=f"see {path} and {' '.join(words)}"))
    message, _, advice = capsys.readouterr().err.partition("  Try: ")
    assert message.split() == words
    assert all(len(line) <= 80 for line in message.splitlines())
    assert advice.split() == ["see", path, "and", *words]
    assert all(line.startswith("  ") for line in advice.splitlines()[1:])
    print_hanging(out(), f"ok   [bold]disk[/]           {' '.join(words)}", margin=20)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("ok   disk")
    assert others
    assert all(line.startswith(f"{'':20}word") and len(line) <= 80 for line in others)
    assert [first, *others] == [line.rstrip() for line in (first, *others)]
