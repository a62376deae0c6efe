"""`llmops doctor`: prints the findings and, with `--run`, what a small training showed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from llmops_kernel.cli.console import out, plain, print_json
from llmops_kernel.cli.doctor.checks import all_checks, run_check
from llmops_kernel.cli.doctor.findings import Finding, Level

if TYPE_CHECKING:
    from rich.console import Console

    from llmops_kernel.cli.doctor.trial import RunReport

_MARKS = {Level.OK: "[green]ok  [/]", Level.WARN: "[yellow]warn[/]", Level.FAIL: "[red]fail[/]"}


def examine(*, with_run: bool, as_json: bool, timeout_s: float) -> int:
    """Run all checks, print them, return the exit code: 1 when anything failed."""
    began_s = time.monotonic()
    console = out(stderr=as_json)
    findings = []
    for check in all_checks():
        findings.append(run_check(check))
        _print_finding(console, findings[-1])
    report = _train(console, timeout_s=timeout_s) if with_run else None
    failed = [f for f in [*findings, *(report.parts if report else ())] if f.level is Level.FAIL]
    if as_json:
        print_json(_as_dict(findings, report=report, is_ok=not failed, began_s=began_s))
    else:
        console.print(_verdict(findings, failed=failed, with_run=with_run))
    return 1 if failed else 0


def _train(console: Console, *, timeout_s: float) -> RunReport:
    from llmops_kernel.cli.doctor.trial import train_tiny_model
    from llmops_kernel.cli.runs.live_parts import waterfall_table

    console.print("\nTraining tiny-llama for 20 steps on a temporary cluster ...", style="bold")
    report = train_tiny_model(
        on_part=lambda part: _print_finding(console, part), timeout_s=timeout_s
    )
    if report.view is not None and report.view.phases():
        console.print(waterfall_table(report.view, now_s=time.time()))
    return report


def _print_finding(console: Console, finding: Finding) -> None:
    mark = _MARKS[finding.level]
    console.print(
        f"{mark} [bold]{plain(finding.name):<14}[/] {plain(finding.seen)}", soft_wrap=True
    )
    if finding.remedy:
        console.print(f"     {'':<14} Try: {plain(finding.remedy)}", soft_wrap=True)


def _verdict(findings: list[Finding], *, failed: list[Finding], with_run: bool) -> str:
    if failed:
        names = ", ".join(finding.name for finding in failed)
        return f"\n[red]{len(failed)} failed:[/] {plain(names)}. Fix these first."
    warned = sum(finding.level is Level.WARN for finding in findings)
    close = f" {warned} warning(s) above." if warned else ""
    advice = "" if with_run else " To test a training run: llmops doctor --run"
    return f"\n[green]This machine is ready.[/]{close}{advice}"


def _as_dict(
    findings: list[Finding], *, report: RunReport | None, is_ok: bool, began_s: float
) -> dict[str, Any]:
    return {
        "ok": is_ok,
        "duration_s": round(time.monotonic() - began_s, 3),
        "checks": [finding.as_dict() for finding in findings],
        "run": report.as_dict() if report else None,
    }
