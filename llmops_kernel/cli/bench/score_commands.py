"""`llmops bench score` and `llmops bench plan`: how fast a table is scored, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.bench.commands import (
    AsJson,
    ClusterName,
    Overrides,
    bench_app,
    interruptible,
)

if TYPE_CHECKING:
    from llmops_kernel.services.bench.score import ScoreBench

_EPILOG = "Example: llmops bench score tags.score.yaml --replicas 1,2 --png score.png"
_PLAN_EPILOG = "Example: llmops bench plan 10000000 --price-per-hour 2.50"

ScoreFile = Annotated[
    Path, typer.Argument(help="Score config.", metavar="FILE", exists=True, dir_okay=False)
]
BatchSizes = Annotated[
    str, typer.Option(help="Sequences that one replica works on at once.", metavar="N,N,...")
]
Replicas = Annotated[
    str, typer.Option(help="Copies of the model at the same time.", metavar="N,N,...")
]
Rows = Annotated[
    int, typer.Option(help="Rows of the config's input in each run: its first ones.", min=1)
]
Picture = Annotated[
    Path | None, typer.Option(help="Also draw a picture into this file.", dir_okay=False)
]
Runs = Annotated[int, typer.Option(help="Counted runs of each size.", min=1)]


def _numbers(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers from 1, as 1,2,4")
    return found


@bench_app.command("score", epilog=_EPILOG)
def score(
    config: ScoreFile,
    overrides: Overrides = None,
    batch_sizes: BatchSizes = "1,2,4,8,16,32,64",
    replicas: Replicas = "1",
    rows: Rows = 128,
    runs: Runs = 3,
    cluster: ClusterName = "local",
    png: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Measure output tokens per second over batch sizes; find where larger ones bring little.

    Each size loads the engine with a run that is not counted, then scores the same
    rows --runs times. The rates are of whole runs, from the loaded engine to the last
    row, so rows should be several times the largest batch. Ctrl-C stops the run and
    prints what was measured so far (exit code 130); so does a run that fails (1).

    The result is saved for `llmops bench plan`. The knee is the point of the curve
    farthest above the line from its start to its top (Kneedle, Satopaa et al. 2011).
    """
    from llmops_kernel.cli.clusters.progress import bring_up
    from llmops_kernel.services.bench.score import prepare_score, sizes_of

    sizes = sizes_of(_numbers(replicas), _numbers(batch_sizes))
    if png and not png.absolute().parent.is_dir():  # Before minutes are spent.
        raise typer.BadParameter(f"the folder {png.absolute().parent} does not exist")
    bench = prepare_score(
        *(config, overrides or ()),
        cluster=cluster,
        sizes=sizes,
        runs=runs,
        rows=rows,
        report=_report,
        start=bring_up,
    )
    with interruptible(lambda: _show(bench, png=png, as_json=as_json)):
        bench.run()


def _report(text: str) -> None:
    from llmops_kernel.cli.console import out

    out(stderr=True).print(text, markup=False, highlight=False)


def _show(bench: ScoreBench, *, png: Path | None, as_json: bool) -> None:
    from llmops_kernel.cli.bench.score_table import score_table
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services.bench.score import save

    figures = bench.figures()
    if figures is None:
        return
    knees = {n: knee.batch_size if (knee := figures.knee(n)) else None for n in figures.replicas}
    if as_json:
        print_json({**figures.model_dump(mode="json"), "knees": knees})
    else:
        out().print(score_table(figures))
    path = save(figures)
    _report(f"Saved: {path}")
    if png is not None:
        from llmops_kernel.views.score_bench.picture import render_png

        setting = figures.setting
        parts = (setting.model, setting.engine, f"cluster {setting.cluster}")
        png.write_bytes(render_png(figures, title=" · ".join(part for part in parts if part)))
        _report(f"Picture: {png}")


@bench_app.command("plan", epilog=_PLAN_EPILOG)
def plan(
    rows: Annotated[int, typer.Argument(help="Rows to score.", metavar="ROWS", min=1)],
    result: Annotated[
        Path | None,
        typer.Option("--from", help="File of a result; default: the newest `llmops bench score`."),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(help="Price of one GPU an hour; without GPUs, of one CPU.", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how long ROWS rows take and what they cost, from what `bench score` measured.

    For each measured number of replicas: the batch size at the knee (without a knee
    the fastest), wall time, GPU-hours (on CPUs, CPU-hours) and, with a price, the
    cost. Needs no cluster.
    """
    from llmops_kernel.cli.bench.score_table import plan_table
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services.bench.score import saved
    from llmops_kernel.views.score_bench.figures import score_plan

    found = score_plan(saved(result), rows=rows, price_per_hour=price_per_hour)
    if as_json:
        return print_json(json.loads(json.dumps(found.as_dict())))
    console = out()
    console.print(plan_table(found))
    for text in found.assumptions:
        console.print(f"- {text}", markup=False, highlight=False)
    return None
