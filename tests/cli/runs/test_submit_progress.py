"""What a terminal shows while `llmops submit` waits for its cluster."""

from __future__ import annotations

from rich.console import Console

from llmops_kernel.cli.runs.submit import lines_on


def test_reasons_of_a_wait_move_one_line_and_other_lines_stay() -> None:
    console = Console(force_terminal=True, width=120, record=True)
    with console.status("Submitting ...") as line:
        report = lines_on(console, line)
        report("0 of 2 workers are ready; no node has 8 free nvidia.com/gpu (3 s)")
        report("0 of 2 workers are ready; no node has 8 free nvidia.com/gpu (13 s)")
        assert "no node has 8 free nvidia.com/gpu (13 s)" in str(line.status)
        report("Not uploaded: .env")
    kept = console.export_text()
    assert kept.count("Not uploaded: .env") == 1


def test_without_a_terminal_each_reason_is_a_line() -> None:
    console = Console(width=120, record=True)
    with console.status("Submitting ...") as line:
        report = lines_on(console, line)
        report("1 of 2 workers are ready (3 s)")
    assert "1 of 2 workers are ready (3 s)" in console.export_text()
