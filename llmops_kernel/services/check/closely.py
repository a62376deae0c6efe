"""Checks what a valid config names by using it: rows, tokenizer, hooks, hub, trackers, output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import Problem
from llmops_kernel.config.reading.check import overlap
from llmops_kernel.errors import LLMOpsError, MissingDependencyError
from llmops_kernel.services.check.output import output_findings
from llmops_kernel.services.check.trackers import tracker_findings
from llmops_kernel.services.data.process import Stop, StoppedError, run_job
from llmops_kernel.store.preview_job import DataCheck, Finding, PreviewJob, PreviewLine
from llmops_kernel.views.data_preview.findings import all_findings

TIMEOUT_S = 60.0
_ROWS = 1000
"""Rows of each source that are tokenised: a third of a second."""


class Run(Protocol):
    """Does a job in a process of its own, as `run_job`."""

    def __call__(
        self,
        job: PreviewJob,
        *,
        timeout_s: float,
        progress: Callable[[str], None],
        stop: Stop | None,
    ) -> PreviewLine: ...


@dataclass(frozen=True)
class Closely:
    """What was found; each list in the order of importance."""

    problems: list[Problem] = field(default_factory=list)
    """A run would fail."""
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was checked, and what could not be."""


def look_closely(
    config: Any,
    workspace: Path,
    *,
    known: Sequence[Problem] = (),
    progress: Callable[[str], None] = lambda _: None,
    timeout_s: float = TIMEOUT_S,
    stop: Stop | None = None,
    run: Run = run_job,
) -> Closely:
    """Return what is wrong with what a training config names; nothing for other configs.

    `known` are its problems that were found already: what they are about is not used. Raises
    StoppedError.
    """
    if not isinstance(config, TrainingConfig):
        return Closely()
    found = [
        *_of_rows(config, workspace, known, progress, timeout_s, stop, run),
        *tracker_findings(config.report_to),
        *output_findings(config, workspace),
    ]
    return Closely(
        [_problem(one) for one in found if one.level == "problem"],
        [_problem(one) for one in found if one.level == "warning"],
        [one.message for one in found if one.level == "note"],
    )


def _of_rows(
    config: TrainingConfig,
    workspace: Path,
    known: Sequence[Problem],
    progress: Callable[[str], None],
    timeout_s: float,
    stop: Stop | None,
    run: Run,
) -> list[Finding]:
    job = PreviewJob(
        config=config.model_dump(mode="json"),
        workspace=str(workspace.resolve()),
        max_rows=_ROWS,
        check=True,
        skip=_wrong_fields(config, known),
    )
    try:
        line = run(job, timeout_s=timeout_s, progress=progress, stop=stop)
    except StoppedError:
        raise
    except MissingDependencyError as error:
        return [_not_read("note", error)]
    except LLMOpsError as error:
        return [_not_read("warning", error)]
    return all_findings(
        line.check or DataCheck(max_length=0, has_hook=False, sources=[], findings=[])
    )


def _wrong_fields(config: TrainingConfig, known: Sequence[Problem]) -> list[str]:
    count = len(config.data.sources) if config.data.is_mixture else 0
    sources = [f"data.train.{number}.path" for number in range(count)] or ["data.train"]
    fields = (*sources, "data.eval", "data.format", "data.columns", "hooks.file", "model.id")
    return [name for name in fields if any(overlap(name, one.path) for one in known)]


def _not_read(level: str, error: LLMOpsError) -> Finding:
    message = f"rows, tokenizer and hooks were not tried: {error.message.strip().rstrip('.')}"
    return Finding(
        path="data.train",
        level="note" if level == "note" else "warning",
        message=message,
        remedy=error.remedy,
    )


def _problem(one: Finding) -> Problem:
    return Problem(path=one.path, message=one.message, suggestion=one.remedy)
