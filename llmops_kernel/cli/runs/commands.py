"""`llmops samples | show | compare | diff | stop | retry | resubmit`: runs that exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.console import echo
from llmops_kernel.cli.runs.submit import (
    EXIT_CODES,
    Overrides,
    RunRef,
    RunRefs,
    Traceback,
    follow_run,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from llmops_kernel.api import Comparison, Run
    from llmops_kernel.errors import RunStateError
    from llmops_kernel.views.samples import SampledRow
    from llmops_kernel.views.score_comparison import RowsPage


_SHOWN = 600
"""Characters of a text that a terminal shows; a file or pipe gets all of it."""


@command(RUNS, example="llmops samples last --row 1")
def samples(
    run: Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run)] = "last",
    row: Annotated[
        str | None, typer.Option(help="Show only this row, with all of its answers.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Show the answers at this step.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, all steps.")] = False,
) -> None:
    """Print the newest answer to each row that the run's evaluations kept."""
    from llmops_kernel import api
    from llmops_kernel.cli import console
    from llmops_kernel.views.samples import choose_samples, sample_records

    view = api.attach(run).view
    chosen_rows = choose_samples(view, row=row, step=step)
    if as_json:
        console.print_json(list(sample_records(chosen_rows)))
        return
    out = console.out()
    if not chosen_rows:
        out.print(
            "No evaluation has kept an answer. Set evaluation.generate: true, or give"
            " evaluation.prompts a list."
        )
    for sampled in chosen_rows:
        _print_row(out, sampled, every=row is not None)


def _print_row(out: Console, row: SampledRow, *, every: bool) -> None:
    """Print one answer, or each after the one before it with the words that changed."""
    from rich.table import Table
    from rich.text import Text

    newest = row.newest
    fields = {name: text for name, text in newest.items() if name not in ("row", "prediction")}
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in fields.items():
        grid.add_row(name.replace("_", " "), Text(_cut(text, out)))
    before: str | None = None
    for step in sorted(row.answers) if every else [max(row.answers)]:
        answer = row.answers[step].get("prediction", "")
        label = f"step {step:,}" if every else "answer"
        grid.add_row(label, marked(before, _cut(answer, out)))
        before = _cut(answer, out)
    head = f"Row {row.name}" if every else f"Row {row.name}, step {max(row.answers):,}"
    out.print(Text(head, "bold"))
    out.print(grid)
    out.print()


def marked(before: str | None, text: str) -> Text:
    """Return the text with the words in bold that `before` lacks."""
    from rich.text import Text

    from llmops_kernel.views.samples import new_words

    styled = Text()
    for piece, is_new in new_words(before, text):
        styled.append(piece, "bold underline" if is_new else "")
    return styled


def _cut(text: str, out: Console) -> str:
    if len(text) <= _SHOWN or not out.is_terminal:
        return text
    return f"{text[:_SHOWN]}… ({len(text):,} characters)"


# --- `llmops show | compare | diff | stop | retry | resubmit | stalled`: runs that exist ---


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RowsOfKind = Annotated[
    str | None,
    typer.Option(
        help="Print rows of two scorings: flipped, better, worse, same, changed, error,"
        " only_before, only_after or all."
    ),
]
MetricOfRows = Annotated[
    str | None, typer.Option(help="Metric that decides what is better or worse.")
]
Follow = Annotated[bool, typer.Option("--follow/--detach", help="Show its progress until it ends.")]


@command(RUNS, example="llmops show last --json")
def show(run: RunRef = "last", as_json: AsJson = False, traceback: Traceback = False) -> None:
    """Show a run: state, figures, start-up phases, evaluations, outputs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.runs.tables import print_run

    target = api.attach(run)
    if as_json:
        record = target.record.model_dump(mode="json")
        acts = [act.model_dump() for act in target.acts]
        print_json(
            {"run_id": target.id, "record": record, "agent_acts": acts, **target.view.summary()}
        )
        return
    target.ask_about_start()
    print_run(out(), target, traceback=traceback)


@command(RUNS, example="llmops report last --to tensorboard")
def report(
    run: RunRef = "last",
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="`comet_ml`, `mlflow`, `tensorboard`, `trackio` or `wandb`; may be repeated."
            " Default: `report_to` of the config."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send trackers what they do not have of a run yet, also of one without `report_to`.

    Credentials come from this shell: WANDB_API_KEY, COMET_API_KEY, MLFLOW_TRACKING_URI and the
    like.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.config.counted import counted

    errors = out(stderr=True)
    target = api.attach(run)
    sent = target.report(to or (), progress=lambda text: errors.print(plain(text)))
    if as_json:
        print_json({"run_id": target.id, "rows": sent})
        return
    pages = {event.name: event.url or event.path for event in target.view.trackers}
    for name, count in sent.items():
        echo(f"{name}: {counted(count, 'row')} sent; {pages.get(name, '')}")


@command(RUNS, example="llmops compare last~1 last --png compare.png")
def compare(
    run_refs: Annotated[
        list[str],
        typer.Argument(help="Two or more runs.", metavar="RUN RUN...", autocompletion=complete_run),
    ],
    png: Annotated[Path | None, typer.Option(help="Also draw the curves into this file.")] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The run that the others are compared with; the oldest if not given.",
            autocompletion=complete_run,
        ),
    ] = None,
    rows: RowsOfKind = None,
    metric: MetricOfRows = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows.", min=1, max=1000)] = 20,
    offset: Annotated[int, typer.Option(help="Number of rows to skip.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what differs between runs, then evaluation, loss and samples side by side.

    Three or more are shown as a table with one line per run, and the mean over runs that differ
    only in their seeds. For two scorings, also their metrics with 95 % intervals and the rows that
    changed. Speed and start-up come last.
    """
    if len(run_refs) < 2:
        raise typer.BadParameter("give two runs or more, such as `last~1 last`")
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json

    compared = api.compare(*run_refs, base=base)
    console = out(stderr=as_json)
    if png is not None:
        png.write_bytes(compared.to_png())
    if as_json:
        from llmops_kernel.cli.outputs import of_comparison

        print_json(of_comparison(compared))
    else:
        _print_comparison(
            compared,
            None
            if rows is None
            else compared.page(rows, metric=metric, offset=offset, limit=limit),
        )
    if png is not None:
        console.print(f"Curves: {png}")


def _print_comparison(compared: Comparison, page: RowsPage | None) -> None:
    """Print what differs, and rows instead where some were named."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.cli.runs import tables

    console, targets = out(), compared.runs
    if page is not None:
        tables.print_rows(console, page)
        return
    if len(targets) > 2:
        console.print(tables.matrix_table(compared.matrix))
        tables.print_ids(console, targets, compared.names)
    else:
        console.print(tables.compare_table(targets, compared.names))
    if compared.has_rows:
        tables.print_scores(console, compared)
    tables.print_compared_samples(console, targets, compared.names)
    console.print(tables.speed_table(targets))


@command(RUNS, example="llmops diff last~1 last")
def diff(
    first: Annotated[
        str, typer.Argument(help="The older run.", metavar="RUN", autocompletion=complete_run)
    ],
    second: Annotated[
        str, typer.Argument(help="The newer run.", metavar="RUN", autocompletion=complete_run)
    ] = "last",
    as_json: AsJson = False,
) -> None:
    """Print what differs between two runs: config, code, environment."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import print_json

    differences = api.attach(first).diff(api.attach(second))
    if as_json:
        from llmops_kernel.cli.outputs import of_diff

        return print_json(of_diff(differences))
    return echo(differences.text())


@command(RUNS, example="llmops stop last")
def stop(runs: RunRefs = None, as_json: AsJson = False) -> None:
    """Stop runs; each saves a checkpoint first, so that `llmops retry` can continue from it."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import print_json

    if not runs:
        raise _no_run_named()
    targets = {run.id: run for run in map(api.attach, runs)}.values()
    if not as_json:
        for target in targets:
            _stop_one(target)
        return
    states = [{"run_id": target.id, "state": target.state} for target in targets]
    for target in targets:
        target.stop()
    print_json(states)


def _no_run_named() -> RunStateError:
    """Say which runs could be meant; none is stopped that was not named."""
    from llmops_kernel import api
    from llmops_kernel.errors import RunStateError

    running = [
        summary.run_id
        for summary in api.runs(limit=None).summaries
        if summary.state not in EXIT_CODES
    ]
    if not running:
        return RunStateError("No run was named, and none is running.", remedy="llmops runs")
    names = ", ".join(running[:5]) + (f" and {len(running) - 5} more" if len(running) > 5 else "")
    return RunStateError(
        f"No run was named. Not ended: {names}", remedy=f"llmops stop {running[0]}"
    )


def _stop_one(run: Run) -> None:
    from llmops_kernel.cli.console import out

    if run.has_ended:
        out().print(f"Run {run.id} has already finished: {run.state}.")
        return
    run.stop()
    out().print(f"Stopping run {run.id}. Watch: llmops wait {run.id}")


@command(RUNS, example="llmops retry last --follow")
def retry(run: RunRef = "last", follow: Follow = False, as_json: AsJson = False) -> None:
    """Resume a run from its last checkpoint, as a new attempt of the same run."""
    from llmops_kernel import api

    target = api.attach(run)
    target.retry()
    _report(target, verb="Resumed", follow=follow, as_json=as_json)


@command(RUNS, example="llmops resubmit last optimizer.learning_rate=5e-5 --follow")
def resubmit(
    run: Annotated[
        str,
        typer.Argument(
            help="Run id, its unique beginning, or `last`.", autocompletion=complete_run
        ),
    ],
    overrides: Overrides = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Submit a run's config again, as a new run with the current code and the given changes."""
    from llmops_kernel import api

    submitted = api.attach(run).resubmit(overrides=overrides or ())
    _report(submitted, verb="Submitted", follow=follow, as_json=as_json)


@command(RUNS, example="llmops profile last --steps 3")
def profile(
    run: RunRef = "last",
    steps: Annotated[int, typer.Option(help="The next so many steps.", min=1, max=100)] = 3,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the profile.")] = False,
    as_json: AsJson = False,
) -> None:
    """Profile the next steps of a training or a script that runs, on all workers.

    Prints the operators that take most time, where all ranks stood, and where the timelines for
    Perfetto are. The steps are slower meanwhile, and count in no figure of speed. A script calls
    `track.step` after each of its steps, and uses PyTorch.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.runs.tables import print_profile

    target = api.attach(run)
    before = len(target.view.profiles)
    target.profile(steps)
    console = out(stderr=as_json)
    console.print(f"Run {target.id} profiles its next {steps} steps.")
    if detach:
        return print_json(None) if as_json else None
    with target.follower() as source:
        for _ in source.follow(interval_s=0.2):
            if len(source.view.profiles) > before or not source.view.profiling:
                break
    profiles = target.view.profiles
    if len(profiles) == before:
        raise _not_profiled(target)
    if as_json:
        return print_json(profiles[-1].model_dump(mode="json"))
    return print_profile(console, target, profiles[-1])


def _not_profiled(run: Run) -> RunStateError:
    from llmops_kernel.errors import RunStateError

    warnings = run.view.warnings
    if not run.has_ended and warnings:
        return RunStateError(warnings[-1].message, remedy=warnings[-1].remedy)
    return RunStateError(
        f"Run {run.id} ended before the steps were profiled",
        remedy="profile: {steps: [FIRST, LAST]} in the config profiles steps of the next run",
    )


@command(RUNS, example="llmops stalled last --restart")
def stalled(
    run: RunRef = "last",
    dump: Annotated[
        Path | None, typer.Option(help="Also write the stacks of all workers into this file.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="End it and go on from its last checkpoint.")
    ] = False,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show where the workers of a run stand that makes no step: who waits for whom, and stacks."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.runs.tables import print_stall

    target = api.attach(run)
    if as_json:
        stall = target.stalled()
        if restart:
            target.restart()
        return print_json({"run_id": target.id, "stall": stall and stall.model_dump(mode="json")})
    print_stall(out(), target, dump=dump)
    if restart:
        target.restart()
        _report(target, verb="Restarted", follow=follow)
    return None


def _report(run: Run, *, verb: str, follow: bool, as_json: bool = False) -> None:
    from llmops_kernel.cli.console import out, print_json

    if as_json:
        from llmops_kernel.cli.outputs import of_submitted

        print_json(of_submitted(run))
        return
    if follow:
        follow_run(run)
        return
    out().print(f"{verb} [bold]{run.id}[/]. Next: llmops wait {run.id}")
