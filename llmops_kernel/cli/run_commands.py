"""`llmops runs | show | compare | diff | stop | retry | resubmit`: runs that exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.submit_commands import Overrides, RunRef, follow_run

if TYPE_CHECKING:
    from llmops_kernel.api import Run

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Follow = Annotated[bool, typer.Option("--follow/--detach", help="Show it live until it ends.")]


@command(RUNS, example="llmops runs --limit 5")
def runs(
    name: Annotated[str | None, typer.Option(help="Only runs of this config name.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Only runs of this cluster.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 20,
    starred: Annotated[bool, typer.Option("--starred", help="Only runs with a star.")] = False,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.run_tables import runs_table
    from llmops_kernel.runs.store import RunStore

    only = True if starred else None
    found = RunStore().list(name=name, cluster=cluster, starred=only, limit=limit)
    if as_json:
        print_json([summary.model_dump(mode="json") for summary in found])
    elif not found:
        out().print("No run yet. Submit one: llmops submit CONFIG.train.yaml")
    else:
        out().print(runs_table(found))


@command(RUNS, example="llmops show last --json")
def show(run: RunRef = "last", as_json: AsJson = False) -> None:
    """Tell all about one run: state, figures, start-up waterfall, evaluations, outputs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.cli.run_tables import print_run

    target = api.attach(run)
    if as_json:
        record = target.record.model_dump(mode="json")
        print_json({"run_id": target.id, "record": record, **target.view.summary()})
        return
    print_run(out(), target)


@command(RUNS, example="llmops compare last~1 last --png compare.png")
def compare(
    run_refs: Annotated[list[str], typer.Argument(help="Two or more runs.", metavar="RUN RUN...")],
    png: Annotated[Path | None, typer.Option(help="Also draw the curves into this file.")] = None,
) -> None:
    """Put the figures of runs side by side, with what differs in their configs."""
    if len(run_refs) < 2:
        raise typer.BadParameter("name two runs or more, such as `last~1 last`")
    from llmops_kernel import api
    from llmops_kernel.cli.console import out
    from llmops_kernel.cli.run_tables import compare_table

    targets = [api.attach(ref) for ref in run_refs]
    console = out()
    console.print(compare_table(targets))
    if png is not None:
        png.write_bytes(api.compare(*targets).to_png())
        console.print(f"Curves: {png}")


@command(RUNS, example="llmops diff last~1 last")
def diff(
    first: Annotated[str, typer.Argument(help="The older run.", metavar="RUN")],
    second: Annotated[str, typer.Argument(help="The newer run.", metavar="RUN")] = "last",
) -> None:
    """Print what differs between two runs: config, code, environment."""
    from llmops_kernel import api

    typer.echo(api.attach(first).diff(api.attach(second)).text())


@command(RUNS, example="llmops stop last")
def stop(run: RunRef = "last") -> None:
    """Stop a run; it saves a checkpoint first, so that `llmops retry` can go on."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out
    from llmops_kernel.metrics.events import TERMINAL

    target = api.attach(run)
    if target.state in TERMINAL:
        out().print(f"Run {target.id} is over already: {target.state}.")
        return
    target.stop()
    out().print(f"Run {target.id} is asked to stop. Watch: llmops wait {target.id}")


@command(RUNS, example="llmops retry last --follow")
def retry(run: RunRef = "last", follow: Follow = False) -> None:
    """Resume a run from its last checkpoint, as a new attempt of the same record."""
    from llmops_kernel import api

    target = api.attach(run)
    target.retry()
    _tell(target, what="Resumed", follow=follow)


@command(RUNS, example="llmops resubmit last optimizer.learning_rate=5e-5 --follow")
def resubmit(
    run: Annotated[str, typer.Argument(help="Run id, its unique beginning, or `last`.")],
    overrides: Overrides = None,
    follow: Follow = False,
) -> None:
    """Submit a run's config again, as a new run with today's code and the given changes."""
    from llmops_kernel import api

    again = api.attach(run).resubmit(overrides=overrides or ())
    _tell(again, what="Submitted", follow=follow)


def _tell(run: Run, *, what: str, follow: bool) -> None:
    from llmops_kernel.cli.console import out

    if follow:
        follow_run(run)
        return
    out().print(f"{what} [bold]{run.id}[/]. Next: llmops wait {run.id}")
