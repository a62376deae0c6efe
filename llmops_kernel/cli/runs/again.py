"""`llmops sweep | rerun | reproduce | queue`: runs once more, several at once, and in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.runs.submit import (
    AsJson,
    OnCluster,
    PriorityName,
    RunRef,
    Workspace,
    lines_on,
)

if TYPE_CHECKING:
    from rich.console import Console

    from llmops_kernel.api import Sweep
    from llmops_kernel.cli.fitting_table import FittingTable
    from llmops_kernel.services.queue import QueuedRun
    from llmops_kernel.services.sweep import Trial
    from llmops_kernel.views.figures import RunTable
    from llmops_kernel.views.reproduction import Reproduction

_COMPARED = 4
_WORDS = "A config and fields with values, or `show` and the id of a sweep."
_OVER = "A field with values (8,16), or with --random a range (1e-5..1e-3:log); may be repeated."
_METRIC = "Figure to compare; default: held-out loss, without evaluation rows the training loss."
_PARALLEL = "Trials at a time; default: as many as the cluster has GPUs for, on CPUs one."
_EXAMPLE = "llmops sweep lora.train.yaml --over optimizer.learning_rate=1e-4,3e-4 method.r=8,16"


_RANDOM = "Draw so many trials instead of all combinations."
_OPTUNA = "Let Optuna propose so many, from what the earlier ones gave, and stop bad ones early."
Words = Annotated[
    list[str] | None,
    typer.Argument(help=_WORDS, metavar="CONFIG [FIELD=VALUE,VALUE]... | show [ID]"),
]
Over = Annotated[list[str] | None, typer.Option(help=_OVER, metavar="FIELD=VALUES")]
Lower = Annotated[bool | None, typer.Option("--lower/--higher", help="Which metric is better.")]
Parallel = Annotated[int | None, typer.Option(help=_PARALLEL, min=1)]
Resume = Annotated[str | None, typer.Option(help="Go on with an interrupted sweep.", metavar="ID")]
Stop = Annotated[bool, typer.Option("--stop-on-interrupt", help="At Ctrl-C, stop what runs, too.")]


@command(RUNS, example=_EXAMPLE)
def sweep(
    words: Words = None,
    over: Over = None,
    random: Annotated[int | None, typer.Option(help=_RANDOM, min=1)] = None,
    optuna: Annotated[int | None, typer.Option(help=_OPTUNA, min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of --random and --optuna.")] = 0,
    metric: Annotated[str | None, typer.Option(help=_METRIC)] = None,
    lower: Lower = None,
    parallel: Parallel = None,
    resume: Resume = None,
    stop: Stop = False,
    cluster: OnCluster = "local",
    workspace: Workspace = None,
    as_json: Annotated[bool, typer.Option("--json", help="Of `show`: print JSON.")] = False,
) -> None:
    """Run a config with each combination of some values, and show which is best.

    Trials are ordinary runs, in a group of the sweep's name. All are checked before the first one
    starts. Ctrl-C starts no further ones; `--resume` goes on with those that are missing.
    """
    from llmops_kernel import api

    words, over = words or [], over or []
    if words[:1] == ["show"]:
        _show(api.sweep(words[1] if len(words) > 1 else "last"), as_json=as_json)
        return
    if resume is not None:
        if words or over:
            raise typer.BadParameter("a sweep goes on as it began: give --resume and no values")
        _follow(api.sweep(resume), stop=stop)
        return
    if not words or "=" in words[0]:
        raise typer.BadParameter("name a config, or `show`", param_hint="CONFIG")
    if random is not None and optuna is not None:
        raise typer.BadParameter("give one of --random and --optuna")
    from llmops_kernel.services.search_space import Search
    from llmops_kernel.services.sweep_plan import plan_sweep

    target = api.cluster(cluster)
    spec = plan_sweep(
        target,
        Path(words[0]),
        Search((*over, *words[1:]), random=random, optuna=optuna, seed=seed),
        workspace=workspace,
        metric=metric,
        better=None if lower is None else "lower" if lower else "higher",
        parallel=parallel,
    )
    _follow(api.Sweep(target.backend, spec), stop=stop)


def _show(target: Sweep, *, as_json: bool) -> None:
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.config.counted import counted

    if as_json:
        from llmops_kernel.cli.outputs import of_sweep

        print_json(of_sweep(target))
        return
    spec = target.spec
    out().print(
        f"Sweep [bold]{spec.id}[/]: {counted(spec.optuna or len(spec.trials), 'trial')} on cluster"
        f" {plain(spec.cluster)}; {spec.better} {plain(spec.metric)} is better"
        f" ({plain(spec.about_metric)})"
    )
    trials = target.trials()
    _print_table(target, trials)
    if any(not trial.has_ended for trial in trials) or len(trials) < (spec.optuna or 0):
        out().print(f"Go on with what is missing: llmops sweep --resume {spec.id}")


def _print_table(target: Sweep, trials: Sequence[Trial]) -> None:
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.sweep import about_end, best_of

    spec, console = target.spec, out()
    console.print(_table(target.table(trials)))
    if about := about_end(spec, trials):
        console.print(plain(about))
    best = best_of(trials, spec.better)
    if best is None:
        return
    console.print(
        f"Best: trial {best.number} ({plain(best.name)}), {plain(spec.metric)}"
        f" {plain(best.value_text)}, run {best.run}"
    )
    sign = 1 if spec.better == "lower" else -1
    ranked = sorted((t for t in trials if t.counts), key=lambda t: sign * (t.value or 0.0))
    if len(ranked) > 1:
        runs = " ".join(str(trial.run) for trial in ranked[:_COMPARED])
        console.print(f"Compare the best: llmops compare {runs}")


def _table(table: RunTable) -> FittingTable:
    from llmops_kernel.cli import console

    rows = [[*map(console.plain, row)] for row in table.rows]
    right = [*map(console.plain, table.numbers)]
    names = [*map(console.plain, table.names)]
    return console.table(names, rows, right=right, whole=["run"], optional=["duration"])


def _follow(target: Sweep, *, stop: bool) -> None:
    """Run a sweep to its end, with its table in a terminal and a line a trial elsewhere."""
    from llmops_kernel.cli.console import out

    console = out()
    with _interruptible(target, stop=stop):
        console.print(
            f"Sweep [bold]{target.id}[/], {target.spec.parallel} at a time; {target.spec.better}"
            f" {target.spec.metric} is better ({target.spec.about_metric})"
        )
        with _Screen(target, console) as screen:
            target.resume(on_change=screen.show, progress=lines_on(out(stderr=True)))
    trials = target.trials()
    _print_table(target, trials)
    if not any(trial.state == "SUCCEEDED" for trial in trials):
        raise typer.Exit(1)


@contextmanager
def _interruptible(target: Sweep, *, stop: bool) -> Iterator[None]:
    """On Ctrl-C say what goes on, stop it where that is wanted, and exit with 130."""
    from llmops_kernel.cli.console import out

    try:
        yield
    except KeyboardInterrupt:
        console, trials = out(stderr=True), target.trials()
        live = [trial.run for trial in trials if trial.run and not trial.has_ended]
        console.print(f"\nInterrupted; no further trial starts. {len(live)} running: {live}")
        if live and (stop or _confirms("Stop what runs, too?")):
            target.stop()
            console.print("They are being stopped; what was stopped is not tried again.")
        console.print(f"Go on with what is missing: llmops sweep --resume {target.id}")
        raise typer.Exit(130) from None


def _confirms(question: str) -> bool:
    """Ask in a terminal; elsewhere, and at another Ctrl-C, the answer is no."""
    if not sys.stdin.isatty():
        return False
    try:
        return typer.confirm(question, default=False)
    except (KeyboardInterrupt, typer.Abort):
        return False


# --- `llmops rerun`: the runs of a group with today's code ---


@command(RUNS, example="llmops rerun --group baseline")
def rerun(
    group: Annotated[str, typer.Option(help="Group whose runs are submitted again.")] = "",
    tag: Annotated[str, typer.Option(help="Or a tag of such runs.")] = "",
    into: Annotated[
        str, typer.Option(help="Group of the new runs; that of an interrupted rerun goes on.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Cluster; default: that of each run.")] = "",
    parallel: Parallel = None,
    as_json: AsJson = False,
) -> None:
    """Submit the runs of a group again with today's code, and compare old and new by pairs.

    Each has its recorded config. The table has the mean change of each figure over the pairs, with
    a 95 % interval from how much the pairs differ.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain, print_json
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.rerun import members, new_group

    if bool(group) == bool(tag):
        raise typer.BadParameter("give one of --group and --tag")
    backend = current()
    name = into or new_group(group or tag)
    records = members(backend.store, group=group, tag=tag)
    target = api.Rerun(backend, records, into=name, cluster=cluster)
    console = out(stderr=as_json)
    console.print(f"{len(records)} runs again, into group {plain(name)}")
    try:
        target.wait(parallel=parallel, progress=lines_on(out(stderr=True)))
    except KeyboardInterrupt:
        of = f"--group '{group}'" if group else f"--tag '{tag}'"
        out(stderr=True).print("\nInterrupted: no further run starts, and what runs continues.")
        out(stderr=True).print(f"Go on: llmops rerun {plain(of)} --into '{plain(name)}'")
        raise typer.Exit(130) from None
    if as_json:
        from llmops_kernel.cli.outputs import of_rerun

        print_json(of_rerun(target))
    else:
        console.print(_table(target.pairs_table()))
        console.print(_table(target.table()))
    pairs = target.pairs()
    if left_out := [pair for pair in pairs if not pair.is_compared]:
        console.print(
            f"{len(left_out)} of {len(pairs)} pairs are not compared: one has not succeeded"
        )
        raise typer.Exit(1)


# --- `llmops reproduce`: the same record gives the same numbers, or the first one that differs ---


_AGAINST = "Only compare with this run, such as a reproduction that was left running."
_WHERE = "Cluster to run it on; default: the run's own."
Against = Annotated[
    str | None, typer.Option(help=_AGAINST, autocompletion=complete_run, metavar="RUN")
]


@command(RUNS, example="llmops reproduce last")
def reproduce(
    run: RunRef = "last",
    against: Against = None,
    cluster: Annotated[str, typer.Option(help=_WHERE)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Run it once more from its record, and compare every step, evaluation or scored row.

    Code and config are those that were submitted. Numbers are equal if their bits are; times are
    not compared. Exit code 0: equal; 1: different, with the first step that differs and what can
    be the reason; 2: it could not be compared. Ctrl-C stops watching, not the run.
    """
    from llmops_kernel.cli.console import out, plain, print_json, show_error
    from llmops_kernel.errors import LLMOpsError

    try:
        answer = _reproduced(run, against, cluster)
    except LLMOpsError as error:
        show_error(error)
        if as_json:
            print_json(error.to_dict())
        raise typer.Exit(2) from None
    if as_json:
        print_json(answer.to_json())
    else:
        out().print(plain(answer.text))
    if not answer.is_equal:
        raise typer.Exit(1)


def _reproduced(ref: str, against: str | None, cluster: str) -> Reproduction:
    """Submit the run again, or take the named one, follow it to its end and compare."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.cli.runs.live import follow_in_terminal
    from llmops_kernel.services import reproduce as service
    from llmops_kernel.services.backend import current

    console, store = out(stderr=True), current().store
    target = api.attach(ref)
    if against is None:
        recorded = service.check(store, target.id)
        place = api.cluster(cluster or target.record.cluster)
        changes = service.changed_since(recorded, place)
        console.print(f"Run {target.id} once more, from its record")
        console.print(
            "Different since then:" if changes else "Nothing that this machine sees has changed"
        )
        for change in changes:
            console.print(f"  {plain(change.text)}")
        against = service.begin(place, recorded, progress=lines_on(console)).run_id
    by = api.attach(against)
    if not by.has_ended:
        try:
            follow_in_terminal(by, console=console)
        except KeyboardInterrupt:
            console.print(f"\nDetached; run {by.id} continues. Compare when it has ended:")
            console.print(f"  llmops reproduce {target.id} --against {by.id}")
            raise typer.Exit(130) from None
    return service.result(store, target.id, by.id)


_MOVED = "Run that waits or runs; without one the queue is shown."
_AGAIN = "Submit those again that waited when the cluster's head was lost; `llmops up` does so too."
_FIRST = "Put the run before all others."
Moved = Annotated[str | None, typer.Argument(help=_MOVED, autocompletion=complete_run)]
Before = Annotated[
    str | None,
    typer.Option(help="Put it before this run.", autocompletion=complete_run, metavar="RUN"),
]


@command(RUNS, example="llmops queue last --priority high")
def queue(
    run: Moved = None,
    priority: Annotated[PriorityName | None, typer.Option(help="Its new priority.")] = None,
    first: Annotated[bool, typer.Option("--first", help=_FIRST)] = False,
    before: Before = None,
    resubmit: Annotated[bool, typer.Option("--resubmit", help=_AGAIN)] = False,
    cluster: OnCluster = "local",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the runs of all users that wait on a cluster, in order, or change the order.

    The higher priority goes first; among equal ones the user whose runs hold and have lately used
    the least; then who came first. `llmops stop RUN` takes a run out of the queue.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services.clusters import resubmit as submit_again

    changes = [priority is not None, first, before is not None]
    if bool(run) != any(changes) or (first and before is not None):
        raise typer.BadParameter(
            "name a run, and one or more of --priority and (--first or --before)"
        )
    if resubmit:
        submit_again(api.cluster(cluster), progress=lines_on(out(stderr=True)))
    queued = (
        api.attach(run).queue(priority=priority, before="" if first else before)
        if run
        else api.cluster(cluster).queue()
    )
    if as_json:
        print_json([asdict(each) for each in queued])
        return
    if not queued:
        out().print("No run waits, and none has resources of its own.")
        return
    out().print(_queue_table(queued))


def _queue_table(queued: Sequence[QueuedRun]) -> FittingTable:
    from llmops_kernel.cli.console import plain, state, table
    from llmops_kernel.config.counted import counted_resources
    from llmops_kernel.views import format as fmt

    now_s = time.time()
    rows = [
        [
            fmt.DASH if each.place is None else str(each.place),
            plain(each.run),
            plain(each.user or fmt.DASH),
            each.priority,
            counted_resources(each.needs),
            state("RUNNING" if each.place is None else "QUEUED"),
            fmt.seconds(now_s - each.since_s),
            plain(each.moved_by),
        ]
        for each in queued
    ]
    columns = ["place", "run", "user", "priority", "needs", "state", "since", "moved by"]
    if not any(each.moved_by for each in queued):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return table(columns, rows, right=("place", "since"), optional=("since",), whole=("run",))


class _Screen:
    """The table of a sweep that is rewritten in a terminal; in a pipe a line a trial that ends."""

    def __init__(self, target: Sweep, console: Console) -> None:
        from rich.live import Live

        self._target, self._console = target, console
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._ended: set[int] = set()

    def __enter__(self) -> _Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, trials: Sequence[Trial]) -> None:
        from llmops_kernel.api.sweeps import one_line
        from llmops_kernel.cli.console import plain

        if self._console.is_terminal:
            started = [trial for trial in trials if trial.run]
            table = self._target.table(started[-max(1, self._console.height - 8) :])
            self._live.update(_table(table), refresh=True)
            return
        for trial in trials:
            if trial.has_ended and trial.number not in self._ended:
                self._ended.add(trial.number)
                message = f": {trial.message}" if trial.message else ""
                self._console.print(
                    plain(
                        f"trial {trial.number} ({trial.name}) {trial.state.lower()},"
                        f" {self._target.spec.metric} {trial.value_text or '–'}, run {trial.run}"
                        f"{message} [{one_line(trials)}]"
                    )
                )
