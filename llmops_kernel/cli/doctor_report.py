"""`llmops doctor`: prints the findings and, with `--run`, what a small training showed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import out, plain, print_hanging, print_json
from llmops_kernel.cli.runs.live_parts import waterfall_table
from llmops_kernel.config.counted import counted
from llmops_kernel.services.doctor import DoctorReport, examine
from llmops_kernel.services.doctor_checks import Finding, Level

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {Level.OK: "[green]ok  [/]", Level.WARN: "[yellow]warn[/]", Level.FAIL: "[red]fail[/]"}

_MARGIN = 20
"""Where a finding's text begins, behind its mark and name."""


def print_report(*, with_run: bool, as_json: bool, timeout_s: float) -> int:
    """Run all checks, print them, return the exit code: 1 when anything failed."""
    console = out(stderr=as_json)
    report = examine(
        with_run=with_run,
        timeout_s=timeout_s,
        on_finding=lambda finding: _print_finding(console, finding),
        on_run=lambda: console.print(
            "\nTraining tiny-llama for 20 steps on a temporary cluster ...", style="bold"
        ),
    )
    if report.run is not None and report.run.view is not None and report.run.view.phases():
        console.print(waterfall_table(report.run.view, now_s=time.time()))
    if as_json:
        print_json(report.as_dict())
    else:
        console.print(_verdict(report, with_run=with_run))
    return 0 if report.is_ok else 1


def _print_finding(console: Console, finding: Finding) -> None:
    mark = _MARKS[finding.level]
    name = f"{mark} [bold]{plain(finding.name):<14}[/]"
    print_hanging(console, f"{name} {plain(finding.seen)}", margin=_MARGIN)
    if finding.remedy:
        print_hanging(console, f"{'':<{_MARGIN}}Try: {plain(finding.remedy)}", margin=_MARGIN)


def _verdict(report: DoctorReport, *, with_run: bool) -> str:
    if failed := report.failed:
        names = ", ".join(finding.name for finding in failed)
        return f"\n[red]{len(failed)} failed:[/] {plain(names)}. Fix these first."
    warned = sum(finding.level is Level.WARN for finding in report.findings)
    close = f" {counted(warned, 'warning')} above." if warned else ""
    advice = "" if with_run else " To test a training run: llmops doctor --run"
    return f"\n[green]This machine is ready.[/]{close}{advice}"
