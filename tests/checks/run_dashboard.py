"""Write or compare `llmops_kernel/metrics/run_dashboard.json`, the dashboard of runs for Grafana.

`python -m tests.checks.run_dashboard` compares, with `--write` it writes (`make dashboard`). It is
made by Grafana's own builders, which nobody who uses the file needs.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from grafana_foundation_sdk.builders import dashboard, prometheus, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from llmops_kernel.metrics.run_gauges import GAUGES, PREFIX
from tests.checks.tracked import ROOT

FILE: Final = ROOT / "llmops_kernel" / "metrics" / "run_dashboard.json"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
LABELS: Final = ("cluster", "user", "kind", "name")
"""Labels that a viewer chooses by; each choice narrows the next."""
RUNS: Final = ",".join(f'{label}=~"${label}"' for label in LABELS)
WIDTH: Final = 24


@dataclass(frozen=True)
class Chart:
    title: str
    gauge: str
    unit: str
    legend: str = "{{name}} {{run}}"
    width: int = 8
    scale: Literal["", "percent"] = ""


CHARTS: Final = (
    Chart("Loss", "llmops_run_loss", "none", width=12),
    Chart("Evaluation", "llmops_run_evaluation", "none", "{{metric}} {{name}} {{run}}", width=12),
    Chart("MFU", "llmops_run_mfu_ratio", "percentunit", scale="percent"),
    Chart("Tokens per second", "llmops_run_tokens_per_second", "short"),
    Chart("Time of a step", "llmops_run_step_time_seconds", "s"),
    Chart("Waiting for rows, of a step", "llmops_run_data_wait_seconds", "s"),
    Chart("Learning rate", "llmops_run_learning_rate", "sci"),
    Chart("Gradient norm", "llmops_run_grad_norm", "none"),
    Chart("Peak memory of a device", "llmops_run_peak_memory_bytes", "bytes"),
    Chart("Steps", "llmops_run_step", "none"),
    Chart("Done, of runs without steps", "llmops_run_done", "none", "{{unit}} of {{name}} {{run}}"),
    Chart(
        "Numbers of scripts and scores", "llmops_run_value", "none", "{{metric}} {{name}} {{run}}"
    ),
    Chart("Submit to first step", "llmops_run_first_step_seconds", "s"),
    Chart("Phases", "llmops_run_phase_seconds", "s", "{{phase}} {{name}} {{run}}"),
)


def metric(gauge: str, extra: str = "") -> str:
    """Return the PromQL of a gauge for the chosen runs. Raises KeyError for one that is none."""
    if gauge not in {each.name for each in GAUGES}:
        raise KeyError(gauge)
    return f"{PREFIX}{gauge}{{{RUNS}{extra}}}"


def build() -> str:
    """Return the dashboard as JSON, the same for the same code."""
    made = (
        dashboard.Dashboard("Training runs")
        .uid("llmops-runs")
        .description("Runs of llmops-kernel, from the metrics of their Ray clusters.")
        .tags(["llmops", "ray"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    for variable in variables():
        made = made.with_variable(variable)
    for panel in panels():
        made = made.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def variables() -> Iterator[dashboard.QueryVariable]:
    for number, label in enumerate(LABELS):
        above = ",".join(f'{name}=~"${name}"' for name in LABELS[:number])
        yield (
            dashboard.QueryVariable(label)
            .label(label.capitalize())
            .query(f"label_values({PREFIX}llmops_run_state{{{above}}}, {label})")
            .datasource(SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(VariableOption(text="All", value="$__all", selected=True))
        )


def panels() -> Iterator[table.Panel | timeseries.Panel]:
    yield (
        table.Panel()
        .title("Runs now")
        .description(f"{PREFIX}llmops_run_state is 1 for the state that a run is in.")
        .datasource(SOURCE)
        .height(7)
        .span(16)
        .with_target(
            prometheus.Dataquery()
            .expr(f"{metric('llmops_run_state')} == 1")
            .format(PromQueryFormat.TABLE)
            .instant()
            .ref_id("A")
        )
    )
    yield _chart(
        "Waiting for resources",
        f"sum by (cluster) ({metric('llmops_run_queued')})",
        "{{cluster}}",
        unit="none",
        width=8,
    ).height(7)
    helps = {gauge.name: gauge.help for gauge in GAUGES}
    for chart in CHARTS:
        panel = _chart(
            chart.title, metric(chart.gauge), chart.legend, unit=chart.unit, width=chart.width
        ).description(f"{helps[chart.gauge]} ({PREFIX}{chart.gauge}).")
        yield panel.min(0).max(1) if chart.scale else panel


def _chart(title: str, expr: str, legend: str, *, unit: str, width: int) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(title)
        .datasource(SOURCE)
        .unit(unit)
        .height(8)
        .span(width)
        .with_target(prometheus.Dataquery().expr(expr).legend_format(legend).range().ref_id("A"))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    text = build()
    if parser.parse_args().write:
        FILE.write_text(text)
        return 0
    before = FILE.read_text() if FILE.exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(before.splitlines(True), text.splitlines(True), "file", "code")
    )
    return int(before != text)


if __name__ == "__main__":
    sys.exit(main())
