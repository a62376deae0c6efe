"""`llmops bench loop | score | plan`: how long a submission takes, how fast a table is scored."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmops_kernel.cli.app import EXAMPLES, MACHINE, app

if TYPE_CHECKING:
    from llmops_kernel.cli.fitting_table import FittingTable
    from llmops_kernel.services.score_bench import ScoreBench
    from llmops_kernel.views.bench_figures import Kind, LoopFigures


EXAMPLES["bench"] = "llmops bench loop lora.train.yaml --runs 10"
_LOOP_EPILOG = f"Example: {EXAMPLES['bench']}"

Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the config.", metavar="SECTION.FIELD=VALUE"),
]
ClusterName = Annotated[
    str, typer.Option(help="Name of the cluster; started if needed, and kept running.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to stderr.")]
BenchConfig = Annotated[
    Path,
    typer.Argument(
        help="Training or script config, or a Python script, whose arguments follow `--`.",
        metavar="CONFIG",
        exists=True,
        dir_okay=False,
    ),
]

bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(bench_app, name="bench", rich_help_panel=MACHINE, epilog=_LOOP_EPILOG)


@bench_app.callback()
def bench() -> None:
    """Measure this machine: the loop of a training, and scoring; plan a large table."""


@bench_app.command("loop", epilog=_LOOP_EPILOG)
def loop(
    config: BenchConfig,
    overrides: Overrides = None,
    runs: Annotated[
        int, typer.Option(help="Number of submissions of each kind, warm and cold.", min=1)
    ] = 5,
    cluster: ClusterName = "local",
    warm_only: Annotated[bool, typer.Option("--warm-only", help="Skip the cold ones.")] = False,
    cold_only: Annotated[bool, typer.Option("--cold-only", help="Skip the warm ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit one config warm and cold alternately; compare the times to the first step.

    One submission of each kind warms up and is not counted; then warm and cold
    runs alternate, each after the end of the one before. A run that did not start the
    intended way is reported and left out. Ctrl-C stops the current run and prints
    what was measured so far (exit code 130); so does a run that fails (1).

    --json prints {"warm": {"median_s", "runs_s", "phases"}, "cold": {...}, "ratio"}.
    All are seconds from submit to the end of the first step; "phases" are
    medians; "ratio" is the cold median / the warm median. What was not measured
    is null. After a failed run there is "error", too.
    """
    if warm_only and cold_only:
        raise typer.BadParameter("--warm-only and --cold-only cannot be used together")
    from llmops_kernel.cli.console import bring_up, out
    from llmops_kernel.errors import RunFailedError
    from llmops_kernel.services.bench import LoopBench

    kinds: list[Kind] = ["cold"] if cold_only else ["warm"] if warm_only else ["warm", "cold"]
    bench = LoopBench(
        *(config, overrides or ()),
        cluster=cluster,
        kinds=kinds,
        runs=runs,
        report=lambda text: out(stderr=True).print(text, markup=False),
        start=bring_up,
    )
    show = partial(_show_loop, bench.figures, as_json=as_json)
    with interruptible(show, as_json=as_json):
        bench.run()
        if missing := [kind for kind in kinds if not getattr(bench.figures, kind).runs_s]:
            raise RunFailedError(
                f"No run started {' or '.join(missing)}",
                remedy="the reasons are next to the runs above; `llmops status` shows more",
            )


@contextmanager
def interruptible(show: Callable[[dict[str, Any]], None], *, as_json: bool) -> Iterator[None]:
    """Show what was measured, however it ends; exit with 130 after Ctrl-C or SIGTERM.

    With `--json` an error is a part of what is shown, as a command prints one document.
    """
    from llmops_kernel.cli.console import show_error
    from llmops_kernel.errors import LLMOpsError

    # After SIGTERM, too, no run may be left running.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    error_parts: dict[str, Any] = {}
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except LLMOpsError as error:
        if not as_json:
            raise
        error_parts = error.to_dict()
        show_error(error)
        raise typer.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        show(error_parts)


def _show_loop(figures: LoopFigures, error_parts: dict[str, Any], *, as_json: bool) -> None:
    from llmops_kernel.cli.console import out, print_json

    if as_json:
        print_json({**figures.as_dict(), **error_parts})
    elif figures.warm.runs_s or figures.cold.runs_s:
        out().print(loop_table(figures))


def loop_table(figures: LoopFigures) -> FittingTable:
    """Return a line a phase, then the total, its range and the ratio."""
    from llmops_kernel.cli.console import table
    from llmops_kernel.views.bench_figures import in_order
    from llmops_kernel.views.format import DASH, seconds

    sides = (figures.warm, figures.cold)
    rows = [
        [name.replace("_", " "), *(seconds(side.phases.get(name)) for side in sides)]
        for name in in_order([*figures.warm.phases, *figures.cold.phases])
    ]
    medians = ["submit to first step", *(seconds(side.median_s) for side in sides)]
    rows.append([f"[bold]{cell}[/]" for cell in medians])
    rows.append(["fastest", *(seconds(min(side.runs_s, default=None)) for side in sides)])
    rows.append(["slowest", *(seconds(max(side.runs_s, default=None)) for side in sides)])
    rows.append(["runs", *(str(len(side.runs_s)) for side in sides)])
    rows.append(["cold / warm", "", DASH if figures.ratio is None else f"{figures.ratio:.2f}"])
    medians_table = table(["medians", "warm", "cold"], rows, right=["warm", "cold"])
    medians_table.caption = "Medians of phases need not add up to the median of the whole."
    return medians_table


# --- `llmops bench score` and `llmops bench plan` ---
# How fast a table is scored, and what it costs.


_SCORE_EPILOG = "Example: llmops bench score tags.score.yaml --replicas 1,2 --png score.png"
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


@bench_app.command("score", epilog=_SCORE_EPILOG)
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
    from llmops_kernel.cli.console import bring_up
    from llmops_kernel.services.score_bench import prepare_score, sizes_of

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
    with interruptible(partial(_show_score, bench, png=png, as_json=as_json), as_json=as_json):
        bench.run()


def _report(text: str) -> None:
    from llmops_kernel.cli.console import out

    out(stderr=True).print(text, markup=False, highlight=False)


def _show_score(
    bench: ScoreBench, error_parts: dict[str, Any], *, png: Path | None, as_json: bool
) -> None:
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.score_table import score_table
    from llmops_kernel.services.score_bench import save

    figures = bench.figures()
    if figures is None:
        if as_json and error_parts:
            print_json(error_parts)
        return
    knees = {n: knee.batch_size if (knee := figures.knee(n)) else None for n in figures.replicas}
    if as_json:
        print_json({**figures.model_dump(mode="json"), "knees": knees, **error_parts})
    else:
        out().print(score_table(figures))
    path = save(figures)
    _report(f"Saved: {path}")
    if png is not None:
        from llmops_kernel.views.score_bench import render_png

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
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.score_table import plan_table
    from llmops_kernel.services.score_bench import saved
    from llmops_kernel.views.score_bench import score_plan

    found = score_plan(saved(result), rows=rows, price_per_hour=price_per_hour)
    if as_json:
        return print_json(json.loads(json.dumps(found.as_dict())))
    console = out()
    console.print(plan_table(found))
    for text in found.assumptions:
        console.print(f"- {text}", markup=False, highlight=False)
    return None
