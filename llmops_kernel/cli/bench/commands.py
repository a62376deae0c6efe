"""`llmops bench loop`: how long a submission takes, warm and cold."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import EXAMPLES, MACHINE, app
from llmops_kernel.services.bench.presets import Preset

if TYPE_CHECKING:
    from llmops_kernel.services.bench.loop import LoopBench
    from llmops_kernel.views.bench_figures import Kind, LoopFigures

EXAMPLES["bench"] = "llmops bench loop --runs 10 --png loop.png"
_EPILOG = f"Example: {EXAMPLES['bench']}"

Config = Annotated[
    Path | None,
    typer.Argument(help="Training config, YAML; default: see --preset.", metavar="CONFIG"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the config.", metavar="SECTION.FIELD=VALUE"),
]
PresetName = Annotated[
    Preset | None,
    typer.Option(
        help="Without CONFIG: `tiny`, a toy model on two workers with ZeRO-2 (the default);"
        " `smollm2-lora`, SmolLM2-135M with LoRA on one worker. Three steps each."
    ),
]
ScriptFile = Annotated[
    Path | None,
    typer.Option(
        help="A Python script or script config instead of CONFIG; its arguments follow `--`.",
        exists=True,
        dir_okay=False,
    ),
]
ClusterName = Annotated[
    str, typer.Option(help="Name of the cluster; started if needed, and kept running.")
]
Picture = Annotated[
    Path | None, typer.Option(help="Also draw a picture into this file.", dir_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to stderr.")]

bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(bench_app, name="bench", rich_help_panel=MACHINE, epilog=_EPILOG)


@bench_app.callback()
def bench() -> None:
    """Measure this machine: the loop of a training, and scoring; plan a large table."""


@bench_app.command("loop", epilog=_EPILOG)
def loop(
    config: Config = None,
    overrides: Overrides = None,
    runs: Annotated[
        int, typer.Option(help="Number of submissions of each kind, warm and cold.", min=1)
    ] = 5,
    preset: PresetName = None,
    script: ScriptFile = None,
    cluster: ClusterName = "local",
    warm_only: Annotated[bool, typer.Option("--warm-only", help="Skip the cold ones.")] = False,
    cold_only: Annotated[bool, typer.Option("--cold-only", help="Skip the warm ones.")] = False,
    png: Picture = None,
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
    config, words = _words(config, overrides or (), script)
    _check(config, preset, warm_only=warm_only, cold_only=cold_only, png=png)
    kinds: list[Kind] = [] if cold_only else ["warm"]
    kinds += [] if warm_only else ["cold"]
    from llmops_kernel.services.bench.prepare import config_file

    with config_file(config, preset) as path:
        made = _prepare(path, words, cluster=cluster, kinds=kinds, runs=runs)
        _carry_out(made, png=png, as_json=as_json)


def _words(
    config: Path | None, overrides: Sequence[str], script: Path | None
) -> tuple[Path | None, list[str]]:
    """Return the file to submit, None for the preset's, and its overrides or arguments."""
    from llmops_kernel.config.reading.overrides import is_override

    if config is None:
        return script, list(overrides)
    if script is not None or is_override(str(config)):  # All words are the script's.
        return script, [str(config), *overrides]
    return config, list(overrides)


def _check(
    config: Path | None,
    preset: Preset | None,
    *,
    warm_only: bool,
    cold_only: bool,
    png: Path | None,
) -> None:
    """Check the arguments before minutes are spent."""
    if config and preset:
        raise typer.BadParameter("CONFIG and --preset cannot be used together")
    if warm_only and cold_only:
        raise typer.BadParameter("--warm-only and --cold-only cannot be used together")
    check_picture(png)


def _prepare(
    path: Path, overrides: Sequence[str], *, cluster: str, kinds: list[Kind], runs: int
) -> LoopBench:
    from llmops_kernel.cli.clusters.progress import bring_up
    from llmops_kernel.cli.console import out
    from llmops_kernel.services.bench.prepare import prepare_loop

    console = out(stderr=True)
    return prepare_loop(
        path,
        overrides,
        cluster=cluster,
        kinds=kinds,
        runs=runs,
        report=lambda text: console.print(text, markup=False),
        start=bring_up,
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


def check_picture(png: Path | None) -> None:
    """Raise BadParameter before minutes are spent when its folder does not exist."""
    if png and not png.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {png.absolute().parent} does not exist")


def _carry_out(made: LoopBench, *, png: Path | None, as_json: bool) -> None:
    """Run the benchmark; print what was measured even when it is interrupted."""
    with interruptible(lambda: _show(made, png=png, as_json=as_json)):
        made.run()
    missing = [kind for kind in made.kinds if all(run.kind != kind for run in made.measured)]
    if missing:
        from llmops_kernel.errors import RunFailedError

        raise RunFailedError(
            f"No run started {' or '.join(missing)}",
            remedy="the reasons are next to the runs above; `llmops status` shows more",
        )


def _show(made: LoopBench, *, png: Path | None, as_json: bool) -> None:
    from llmops_kernel.cli.bench.table import loop_table
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.views.bench_figures import loop_figures

    figures = loop_figures(made.measured)
    if as_json:
        print_json(figures.as_dict())
    elif made.measured:
        out().print(loop_table(figures))
    if png is not None and made.measured:
        _draw(figures, png, title=_title(made))


def _draw(figures: LoopFigures, png: Path, *, title: str) -> None:
    from llmops_kernel.cli.console import out
    from llmops_kernel.views.bench_picture import render_png

    png.write_bytes(render_png(figures, title=title))
    out(stderr=True).print(f"Picture: {png}", markup=False)


def _title(made: LoopBench) -> str:
    """What ran and where: `tiny-llama · full · zero2 × 2 · cluster local`."""
    from llmops_kernel import api
    from llmops_kernel.views.snapshot import describe

    record = api.attach(made.measured[-1].run_id).record
    parts = (describe(record), f"cluster {made.cluster.name}")
    return " · ".join(part for part in parts if part)
