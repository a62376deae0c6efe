"""Several clusters or runs at once: lists that print as tables, and a comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from llmops_kernel.api.cluster_handle import Cluster, describe, describe_html
from llmops_kernel.api.run_handle import Run
from llmops_kernel.clusters.provider import ClusterInfo
from llmops_kernel.clusters.providers import all_clusters
from llmops_kernel.runs.diff import RunDiff
from llmops_kernel.runs.store import RunStore, RunSummary
from llmops_kernel.runs.view import RunView
from llmops_kernel.widgets import format as fmt

_HEADS = ("run", "state", "step", "loss", "tokens/s", "MFU", "cluster", "age")


class ClusterList(list[Cluster]):
    """Prints one line a cluster."""

    def __repr__(self) -> str:
        return "\n".join(map(describe, self._infos())) or "no cluster; llmops.up()"

    def _repr_html_(self) -> str:
        lines = map(describe_html, self._infos())
        return "<br>".join(lines) or "no cluster; <code>llmops.up()</code>"

    def _infos(self) -> list[ClusterInfo]:
        """All at once: one by one, two hundred clusters would take minutes."""
        now = {info.name: info for info in all_clusters()}
        return [now[cluster.name] for cluster in self if cluster.name in now]


class RunList(list[Run]):
    """Runs, newest first; prints as a table of what they were when it was asked for."""

    def __init__(self, store: RunStore, summaries: Sequence[RunSummary]) -> None:
        super().__init__(Run(store, summary.run_id) for summary in summaries)
        self.summaries = tuple(summaries)

    def _rows(self) -> list[tuple[str, ...]]:
        now_s = time.time()
        return [
            (
                summary.run_id,
                summary.state.capitalize(),
                fmt.step_of(summary.last_step, summary.total_steps),
                fmt.loss(summary.loss),
                fmt.rate(summary.tokens_per_second),
                fmt.percent(summary.mfu),
                summary.cluster,
                fmt.seconds(now_s - summary.created_s),
            )
            for summary in self.summaries
        ]

    def __repr__(self) -> str:
        if not self:
            return "no runs yet"
        rows = [_HEADS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        if not self:
            return "no runs yet"
        heads = "".join(f"<th>{escape(head)}</th>" for head in _HEADS)
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows())
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


class Comparison:
    """Curves over each other and, from each run to the next newer one, what differs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(sorted(runs, key=lambda run: run.record.created_s))
        self.diffs: tuple[RunDiff, ...] = tuple(a.diff(b) for a, b in pairwise(self.runs))

    def _named(self) -> list[tuple[str, RunView]]:
        return [(run.id, run.view) for run in self.runs]

    def to_png(self) -> bytes:
        """Loss, speed and start-up phases as a picture."""
        from llmops_kernel.widgets.compare import render_png

        return render_png(self._named())

    def text(self) -> str:
        """Figures and differences, for terminals."""
        from llmops_kernel.widgets.compare import table_text

        return "\n\n".join([table_text(self._named()), *(diff.text() for diff in self.diffs)])

    def __repr__(self) -> str:
        return self.text()

    def _ipython_display_(self) -> None:
        from llmops_kernel.widgets.compare import display

        display(self._named(), self.diffs)
