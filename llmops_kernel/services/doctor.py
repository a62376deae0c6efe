"""All checks of a machine and of this installation, as one report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmops_kernel.services.doctor_checks import Finding, Level, all_checks, run_check

if TYPE_CHECKING:
    from llmops_kernel.services.doctor_trial import RunReport


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorReport:
    """What the checks found; prints one line a check."""

    findings: tuple[Finding, ...]
    run: RunReport | None = None
    """The trial run; None without one."""
    duration_s: float = 0.0

    @property
    def failed(self) -> list[Finding]:
        """Return the findings that failed, those of the trial run included."""
        parts = self.run.parts if self.run else []
        return [one for one in [*self.findings, *parts] if one.level is Level.FAIL]

    @property
    def is_ok(self) -> bool:
        return not self.failed

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.is_ok,
            "duration_s": round(self.duration_s, 3),
            "checks": [finding.as_dict() for finding in self.findings],
            "run": self.run.as_dict() if self.run else None,
        }

    def __repr__(self) -> str:
        parts = self.run.parts if self.run else []
        return "\n".join(str(one) for one in [*self.findings, *parts])


def examine(
    *,
    with_run: bool = False,
    timeout_s: float = 150.0,
    on_finding: Callable[[Finding], None] | None = None,
    on_run: Callable[[], None] | None = None,
) -> DoctorReport:
    """Run all checks. `on_finding` gets each result at once, `on_run` announces the trial run."""
    began_s = time.monotonic()
    report = on_finding or (lambda finding: None)
    findings = []
    for check in all_checks():
        findings.append(run_check(check))
        report(findings[-1])
    trial = None
    if with_run:
        from llmops_kernel.services.doctor_trial import train_tiny_model

        if on_run is not None:
            on_run()
        trial = train_tiny_model(on_part=report, timeout_s=timeout_s)
    took_s = time.monotonic() - began_s
    return DoctorReport(findings=tuple(findings), run=trial, duration_s=took_s)
