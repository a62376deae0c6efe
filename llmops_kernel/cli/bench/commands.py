"""`llmops bench loop`: how long a submission takes, warm and cold."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import EXAMPLES, MACHINE, app

if TYPE_CHECKING:
    from llmops_kernel.cli.fitting_table import FittingTable
    from llmops_kernel.views.bench_figures import Kind, LoopFigures

EXAMPLES["bench"] = "llmops bench loop lora.train.yaml --runs 10"
_EPILOG = f"Example: {EXAMPLES['bench']}"

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
app.add_typer(bench_app, name="bench", rich_help_panel=MACHINE, epilog=_EPILOG)


@bench_app.callback()
def bench() -> None:
    """Measure this machine: the loop of a training, and scoring; plan a large table."""


@bench_app.command("loop", epilog=_EPILOG)
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
    is null.
    """
    if warm_only and cold_only:
        raise typer.BadParameter("--warm-only and --cold-only cannot be used together")
    from llmops_kernel.cli.clusters.progress import bring_up
    from llmops_kernel.cli.console import out
    from llmops_kernel.errors import RunFailedError
    from llmops_kernel.services.bench.loop import LoopBench

    kinds: list[Kind] = ["cold"] if cold_only else ["warm"] if warm_only else ["warm", "cold"]
    bench = LoopBench(
        *(config, overrides or ()),
        cluster=cluster,
        kinds=kinds,
        runs=runs,
        report=lambda text: out(stderr=True).print(text, markup=False),
        start=bring_up,
    )
    with interruptible(lambda: _show(bench.figures, as_json=as_json)):
        bench.run()
    if missing := [kind for kind in kinds if not getattr(bench.figures, kind).runs_s]:
        raise RunFailedError(
            f"No run started {' or '.join(missing)}",
            remedy="the reasons are next to the runs above; `llmops status` shows more",
        )


@contextmanager
def interruptible(show: Callable[[], None]) -> Iterator[None]:
    """Show what was measured, however it ends; exit with 130 after Ctrl-C or SIGTERM."""
    # After SIGTERM, too, no run may be left running.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        show()


def _show(figures: LoopFigures, *, as_json: bool) -> None:
    from llmops_kernel.cli.console import out, print_json

    if as_json:
        print_json(figures.as_dict())
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
