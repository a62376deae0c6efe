"""`llmops schedule`: notebooks and configs that run on a timetable, at a known revision."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from llmops_kernel.cli.app import EXAMPLES, RUNS, app
from llmops_kernel.cli.complete import templates as complete_template
from llmops_kernel.cli.console import echo

if TYPE_CHECKING:
    from llmops_kernel.services.schedules import Firing, Schedule

C = TypeVar("C", bound=Callable[..., Any])
_EXAMPLE = "llmops schedule add nightly lora.train.yaml --cron '0 2 * * 1-5'"
EXAMPLES["schedule"] = _EXAMPLE
group = typer.Typer(
    no_args_is_help=True,
    help="Run a notebook or a config on a timetable: the newest commit of a branch, or one commit.",
)
app.add_typer(group, name="schedule", rich_help_panel=RUNS, epilog=f"Example: {_EXAMPLE}")


def _command(example: str, name: str | None = None) -> Callable[[C], C]:
    return group.command(name, epilog=f"Example: llmops schedule {example}")


def _names() -> list[str]:
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.schedules import ScheduleStore

    return ScheduleStore(current().store).names()


Name = Annotated[str, typer.Argument(help="Name of a schedule.", autocompletion=_names)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_CHANGES = "Changes to the config (SECTION.FIELD=VALUE), or parameters of the notebook."


@_command("add nightly lora.train.yaml --cron '0 2 * * 1-5' --timezone Europe/Berlin")
def add(
    name: Annotated[str, typer.Argument(help="Name of the schedule: lower case and hyphens.")],
    file: Annotated[Path, typer.Argument(help="Notebook or config of a git repository.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help=_CHANGES, metavar="[NAME=VALUE]...")
    ] = None,
    cron: Annotated[
        str, typer.Option(help="Minute, hour, day, month, weekday; none: only by hand.")
    ] = "",
    timezone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
    branch: Annotated[
        str | None,
        typer.Option(help="Run its newest commit; default: the branch that is checked out."),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Stay at this commit instead.")] = None,
    cluster: Annotated[
        str,
        typer.Option(
            help="Cluster of the runs, or its template.", autocompletion=complete_template
        ),
    ] = "local",
    workspace: Annotated[
        Path | None, typer.Option(help="Folder to upload; default: the folder of the config.")
    ] = None,
) -> None:
    """Write a schedule. It fires while `llmops schedule run` or a Jupyter server runs."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services import schedule_source
    from llmops_kernel.services.backend import current

    if branch is not None and revision is not None:
        raise typer.BadParameter("give one of --branch and --revision")
    schedule, warning = schedule_source.new_schedule(
        current(),
        name,
        file,
        cron=cron,
        timezone=timezone,
        branch=branch,
        revision=revision,
        cluster=cluster,
        changes=changes or (),
        workspace=workspace,
    )
    if warning:
        out(stderr=True).print(f"[yellow]Warning:[/] {plain(warning)}")
    _print_next(schedule)


@_command("list", "list")
def list_schedules(as_json: AsJson = False) -> None:
    """List the schedules, what they follow, and how they ran last."""
    from llmops_kernel.cli.console import out, plain, print_json, state, table
    from llmops_kernel.services import scheduler
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.schedules import ScheduleStore, local_time, short

    backend = current()
    schedules = [scheduler.settle(backend, each) for each in ScheduleStore(backend.store).all()]
    if as_json:
        print_json([each.model_dump(mode="json") for each in schedules])
        return
    if not schedules:
        out().print(f"No schedules. Add one: {plain(_EXAMPLE)}")
        return
    rows = []
    for each in schedules:
        last = each.firings[-1] if each.firings else None
        rows.append(
            [
                plain(each.name),
                plain(each.path),
                plain(each.source),
                plain(each.cron or "–"),
                "paused" if each.paused else local_time(each.next_s(), each.timezone),
                state(last.state) if last else "–",
                short(last.revision) if last else "–",
                plain(", ".join(last.runs)) if last and last.runs else "–",
            ]
        )
    columns = ["schedule", "file", "runs", "cron", "next", "last", "revision", "run"]
    out().print(table(columns, rows, whole=["schedule", "run"], optional=["cron", "file"]))


@_command("show nightly")
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a schedule and its firings: when each was due, its revision, run and end."""
    from llmops_kernel.cli.console import facts, out, plain, print_json, state, table
    from llmops_kernel.services import scheduler
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.schedules import ScheduleStore, local_time, short

    backend = current()
    store = ScheduleStore(backend.store)
    schedule = scheduler.settle(backend, store.load(name))
    if as_json:
        print_json(schedule.model_dump(mode="json"))
        return
    zone = schedule.timezone
    lines = {
        "schedule": schedule.name,
        "file": f"{schedule.path} of {schedule.repository}",
        "runs": schedule.source,
        "changes": " ".join(schedule.changes),
        "cluster": "" if schedule.is_notebook else schedule.cluster,
        "cron": f"{schedule.cron} ({zone})" if schedule.cron else "only by hand",
        "next": "paused" if schedule.paused else local_time(schedule.next_s(), zone),
        "notebooks": str(store.folder(name)) if schedule.is_notebook else "",
    }
    out().print(facts({key: plain(text) for key, text in lines.items()}))
    rows = [
        [
            local_time(each.due_s, zone) if each.due_s else "by hand",
            local_time(each.started_s, zone),
            short(each.revision),
            plain(each.branch or "pinned"),
            state(each.state),
            plain(", ".join(each.runs) or each.output or "–"),
            plain(_about(each)),
        ]
        for each in schedule.firings
    ]
    if rows:
        columns = ["due", "started", "revision", "branch", "state", "run", "message"]
        out().print(table(columns, rows, whole=["run", "revision"], optional=["started"]))


def _about(firing: Firing) -> str:
    missed = "many" if firing.missed is None else firing.missed
    covers = f"for {missed} missed before, too" if missed else ""
    return "; ".join(filter(None, [covers, firing.message, firing.remedy]))


@_command("follow nightly main")
def follow(
    name: Name, branch: Annotated[str, typer.Argument(help="Branch, or REMOTE/BRANCH to fetch.")]
) -> None:
    """Let a schedule run the newest commit of a branch."""
    from llmops_kernel.services import schedule_source
    from llmops_kernel.services.backend import current

    _print_next(schedule_source.follow(current(), name, branch=branch))


@_command("pin nightly HEAD~1")
def pin(
    name: Name, revision: Annotated[str, typer.Argument(help="Commit, tag or any name of git's.")]
) -> None:
    """Let a schedule stay at one commit."""
    from llmops_kernel.services import schedule_source
    from llmops_kernel.services.backend import current

    _print_next(schedule_source.pin(current(), name, revision=revision))


@_command("pause nightly")
def pause(name: Name) -> None:
    """Let a schedule not fire until it is resumed."""
    _set_paused(name, True)


@_command("resume nightly")
def resume(name: Name) -> None:
    """Let a paused schedule fire again, from its next due time on."""
    _set_paused(name, False)


def _set_paused(name: str, paused: bool) -> None:
    from llmops_kernel.services import schedule_source
    from llmops_kernel.services.backend import current

    _print_next(schedule_source.set_paused(current(), name, paused, now_s=time.time()))


@_command("rm nightly")
def rm(name: Name) -> None:
    """Remove a schedule. Its runs and executed notebooks are kept."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.schedules import ScheduleStore

    store = ScheduleStore(current().store)
    schedule = store.remove(name)
    kept = f" Its notebooks: {store.folder(name)}" if schedule.is_notebook else ""
    out().print(f"Removed schedule {name}.{plain(kept)}")


@_command("run-now nightly", "run-now")
def run_now(name: Name) -> None:
    """Fire a schedule now and wait until its run is submitted, or its notebook executed."""
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.scheduler import Scheduler
    from llmops_kernel.services.schedules import short

    worker = Scheduler(current(), report=lambda line: out(stderr=True).print(plain(line)))
    try:
        firing = worker.wait(worker.fire(name))
    except KeyboardInterrupt:
        worker.close()
        raise
    if firing.state in ("FAILED", "STOPPED"):
        raise typer.Exit(1)
    for run in firing.runs:
        out().print(f"Run {plain(run)} of revision {short(firing.revision)}")
    if firing.output:
        out().print(f"Notebook of revision {short(firing.revision)}: {plain(firing.output)}")


@_command("run")
def run(
    once: Annotated[
        bool, typer.Option("--once", help="Fire what is due now, wait for it, and end.")
    ] = False,
) -> None:
    """Fire the schedules when they are due, until Ctrl-C. Any number of these may run at once.

    Ctrl-C interrupts the notebooks that are being executed; runs that were submitted go on. What
    came due while none ran is run once.
    """
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.config.counted import counted
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.scheduler import Scheduler
    from llmops_kernel.services.schedules import ScheduleStore

    console = out(stderr=True)

    def report(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {plain(line)}")

    worker = Scheduler(current(), report=report)
    try:
        if once:
            for firing in worker.tick():
                worker.wait(firing)
            return
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Of a service; cleans up, too.
        for name in (names := _names()):
            _print_next(ScheduleStore(current().store).load(name))
        console.print(f"{counted(len(names), 'schedule')}. Ctrl-C ends this.")
        worker.run()
    except KeyboardInterrupt:
        console.print("Stopped. Runs that were submitted go on.")
        raise typer.Exit(130) from None
    finally:
        worker.close()


def _print_next(schedule: Schedule) -> None:
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services.schedules import local_time

    when = "paused" if schedule.paused else "only by hand"
    if (next_s := schedule.next_s()) is not None:
        when = f"next at {local_time(next_s, schedule.timezone)}"
    out().print(f"{schedule.name}: {plain(schedule.path)} at {plain(schedule.source)}, {when}")


@_command("render nightly --cluster kind-cpu > cronjob.yaml")
def render(
    name: Name,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster template of provider kuberay; default: the schedule's own.",
            autocompletion=complete_template,
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Repository as pods reach it; default: its remote origin.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Image with git and llmops-kernel; default: the template's."),
    ] = None,
    git_secret: Annotated[
        str | None,
        typer.Option(help="Secret whose key `credentials` is a file of git's credential store."),
    ] = None,
    claim: Annotated[
        str | None, typer.Option(help="PersistentVolumeClaim that keeps the run records.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Default: the template's, else the context's.")
    ] = None,
) -> None:
    """Print a Kubernetes CronJob that runs a schedule without this machine.

    It says what the schedule follows now: render and apply it again after `follow` or `pin`.
    """
    from llmops_kernel.services import schedule_source
    from llmops_kernel.services.backend import current

    manifest = schedule_source.render(
        current(),
        name,
        cluster=cluster,
        url=url,
        image=image,
        git_secret=git_secret,
        claim=claim,
        namespace=namespace,
    )
    echo(manifest, nl=False)
