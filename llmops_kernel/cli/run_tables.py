"""Runs as terminal tables: the list, one run in full, several side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import facts, plain, state, table
from llmops_kernel.runs.view import RunView
from llmops_kernel.widgets import format as fmt

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from llmops_kernel.api import Run
    from llmops_kernel.runs.store import RunSummary


def runs_table(summaries: Sequence[RunSummary]) -> Table:
    """One line a run."""
    names = ["run", "state", "step", "loss", "MFU", "tokens/s", "cluster", "age", "attempt"]
    rows = [
        [
            summary.run_id,
            state(summary.state),
            f"{_whole(summary.last_step)} of {_whole(summary.total_steps)}",
            fmt.loss(summary.loss),
            fmt.percent(summary.mfu),
            fmt.rate(summary.tokens_per_second),
            summary.cluster,
            fmt.seconds(time.time() - summary.created_s),
            str(summary.attempt),
        ]
        for summary in summaries
    ]
    return table(names, rows, right=("step", "loss", "MFU", "tokens/s", "age", "attempt"))


def print_run(console: Console, run: Run) -> None:
    """One run in full: how it went, then where it came from and where it lies."""
    from llmops_kernel.cli.live_parts import summary

    console.print(summary(run.view, run.record, now_s=time.time()))
    console.print("\nRecord", style="bold")
    console.print(facts(_record(run)))


def _record(run: Run) -> dict[str, str]:
    record, checkpoints = run.record, run.view.checkpoints
    return {
        "submitted": plain(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created_s))),
        "cluster": plain(record.cluster),
        "config": plain(record.config_path or ""),
        "overrides": plain(", ".join(f"{k}={v}" for k, v in record.overrides.items())),
        "re-submitted from": plain(record.parent or ""),
        "code": plain(_code(run)),
        "checkpoint": plain(checkpoints[-1].path) if checkpoints else "",
        "folder": plain(str(run.folder.root)),
    }


def _code(run: Run) -> str:
    git, code = run.record.git, run.record.code_hash[:12]
    if git is None:
        return code
    return f"{code}, git {git.revision[:12]}{' with changes (git.diff)' if git.dirty else ''}"


def compare_table(runs: Sequence[Run]) -> Table:
    """One column a run: figures first, then each config value that is not the same in all."""
    from llmops_kernel.config.load import flatten

    views = [run.view for run in runs]
    rows = [[label, *(value(view) for view in views)] for label, value in _FIGURES.items()]
    metrics = sorted({name for view in views for name in view.best_metrics})
    rows += [[f"best {m}", *(fmt.number(v.best_metrics.get(m)) for v in views)] for m in metrics]
    rows.append(["code", *(run.record.code_hash[:12] for run in runs)])
    configs = [flatten(run.record.config) for run in runs]
    for path in sorted({path for config in configs for path in config}):
        values = [str(config.get(path, fmt.DASH)) for config in configs]
        if len(set(values)) > 1:
            rows.append([f"[bold]{plain(path)}[/]", *(plain(value) for value in values)])
    return table(["", *(run.id for run in runs)], rows)


_FIGURES: dict[str, Callable[[RunView], str]] = {
    "state": lambda view: state(view.state),
    "step": lambda view: f"{_whole(view.last_step)} of {_whole(view.total_steps)}",
    "loss": lambda view: fmt.loss(view.loss),
    "MFU": lambda view: fmt.percent(view.mfu),
    "tokens per second": lambda view: fmt.rate(view.tokens_per_second),
    "step time": lambda view: fmt.step_time(view.step_time_s),
    "peak memory": lambda view: fmt.byte_size(view.peak_memory_bytes),
    "submit to first step": lambda view: fmt.seconds(view.submit_to_first_step_s),
}


def _whole(value: int | None) -> str:
    return fmt.DASH if value is None else f"{value:,}"
