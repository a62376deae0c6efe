"""`llmops submit | wait | logs`: submit a run and follow it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.console import echo_log

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from llmops_kernel.api import Run
    from llmops_kernel.services.submission import Submission


_WAITING = re.compile(r"\(\d+ s\)$")
_LAST_LINES = 10
EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 3}
RunRef = Annotated[
    str,
    typer.Argument(
        help="Run id, its unique beginning, `last` or `last~1`.",
        show_default=True,
        autocompletion=complete_run,
    ),
]
RunRefs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run ids, their unique beginnings, `last` or `last~1`; default: `last`.",
        metavar="[RUN]...",
        autocompletion=complete_run,
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Changes to the config; for a script, its own arguments after `--`.",
        metavar="[SECTION.FIELD=VALUE]... [-- ARGS...]",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only check the config and list what is uploaded.")
]

OnCluster = Annotated[
    str, typer.Option(help="Name of the cluster.", autocompletion=complete_cluster)
]
Workspace = Annotated[
    Path | None,
    typer.Option(help="Folder to upload with the run; default: the folder of the config."),
]
Traceback = Annotated[
    bool, typer.Option("--traceback", help="Show the whole traceback of a failure.")
]
Follow = Annotated[bool, typer.Option("--follow/--detach", help="Show its progress until it ends.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_PACKAGE = "One more package for this run, such as trl==1.16; may be repeated."
_STRICT = "Refuse a training whose plan does not fit in memory."
PriorityName = Literal["low", "normal", "high"]
_PRIORITY = "Where it has to wait: high goes first; low gives its place back at its checkpoint."


@command(RUNS, example="llmops submit lora.train.yaml optimizer.learning_rate=1e-4 --follow")
def submit(
    config: Annotated[
        Path,
        typer.Argument(help="Training config, script config or Python script.", metavar="FILE"),
    ],
    overrides: Overrides = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of workers to start a script on, as with torchrun.", min=1),
    ] = None,
    package: Annotated[list[str] | None, typer.Option(help=_PACKAGE)] = None,
    cluster: OnCluster = "local",
    workspace: Workspace = None,
    follow: Follow = False,
    traceback: Traceback = False,
    dry_run: DryRun = False,
    strict: Annotated[bool, typer.Option("--strict", help=_STRICT)] = False,
    group: Annotated[str, typer.Option(help="Group that the run is in.")] = "",
    project: Annotated[str, typer.Option(help="Project that the run is in.")] = "",
    priority: Annotated[PriorityName, typer.Option(help=_PRIORITY)] = "normal",
    as_json: AsJson = False,
) -> None:
    """Submit a run and return at once, or follow it to its end.

    A Python script: llmops submit train.py --workers 2 -- --lr 1e-4
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out
    from llmops_kernel.services import submission

    request = submission.from_words(
        config,
        overrides or (),
        workspace=workspace,
        settings={} if workers is None else {"num_workers": workers},
        packages=package or (),
    )
    if dry_run:
        return print_upload(request)
    console = out(stderr=True)
    with console.status("Submitting ...") as line:
        target = api.cluster(cluster)
        request = replace(request, strict=strict, group=group, project=project, priority=priority)
        record = submission.submit(target, request, progress=lines_on(console, line))
    run = api.Run(target.backend, record.run_id, provider=target.provider)
    if as_json:
        return _print_submitted(run)
    return submitted(run, cluster=cluster, follow=follow, traceback=traceback)


def _print_submitted(run: Run) -> None:
    from llmops_kernel.cli.console import print_json
    from llmops_kernel.cli.outputs import of_submitted

    print_json(of_submitted(run))


def lines_on(console: Console, line: Status | None = None) -> Callable[[str], None]:
    """Return a function that prints each new line of progress; it stays, as what was left out.

    What a cluster waits for comes again with other seconds: in a terminal it moves the status line.
    """
    from llmops_kernel.cli.console import plain

    last_text = ""

    def report(text: str) -> None:
        nonlocal last_text
        if line is not None and console.is_terminal and _WAITING.search(text):
            line.update(f"Submitting: waiting for the cluster: {plain(text)}")
            return
        if text != last_text:
            console.print(text, highlight=False, markup=False)
        last_text = text

    return report


def submitted(run: Run, *, cluster: str, follow: bool, traceback: bool = False) -> None:
    """Print advice on the config and what to do next, or follow the run to its end."""
    from llmops_kernel.cli.console import out

    print_advice(run.config)
    if follow:
        follow_run(run, traceback=traceback)
    else:
        out().print(f"Submitted [bold]{run.id}[/] to cluster {cluster}.")
        out().print(f"Next: llmops wait {run.id}")


def print_advice(config: Any) -> None:
    """Print the warnings of a valid config, such as a warm-up longer than the run."""
    from llmops_kernel.cli.console import out, plain

    for warning in config.advice() if hasattr(config, "advice") else ():
        out(stderr=True).print(f"[yellow]Warning:[/] {plain(str(warning))}")


@command(RUNS, example="llmops wait last")
def wait(
    run: RunRef = "last",
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", help="Stop waiting after this many seconds.", min=0)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Only wait, then print the summary as JSON.")
    ] = False,
    traceback: Traceback = False,
) -> None:
    """Show a run live until it ends.

    Ctrl-C stops watching, not the run. Exit code 0: it succeeded; 1: it failed; 3: it was
    stopped; 124: timeout.
    """
    from llmops_kernel import api

    target = api.attach(run)
    if not as_json:
        follow_run(target, timeout_s=timeout_s, traceback=traceback)
        return
    _wait_quietly(target, timeout_s=timeout_s)


@command(RUNS, example="llmops logs last --lines 50 --follow")
def logs(
    run: RunRef = "last",
    lines: Annotated[
        int, typer.Option(help="Number of lines to print, from the end.", min=1)
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the run ends.")
    ] = False,
    all_lines: Annotated[
        bool, typer.Option("--all", help="Include Ray's own lines of level INFO.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the steps, evaluations, phases and warnings of a run, and what its code prints."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import print_json

    target = api.attach(run)
    text = target.logs(tail=lines, all_lines=all_lines)
    if as_json:
        print_json({"run_id": target.id, "state": target.state, "text": text})
        return
    echo_log(text)
    if follow:
        _follow_logs(target, printed=text, all_lines=all_lines)


def follow_run(run: Run, *, timeout_s: float | None = None, traceback: bool = False) -> None:
    """Show the live view in this terminal; exit with the code of the run's final state.

    Of a script the last lines that it has printed follow.
    """
    from llmops_kernel.cli.console import out
    from llmops_kernel.cli.runs.live import follow_in_terminal
    from llmops_kernel.services.submission import is_program

    console = out()
    with detached(run.id):
        final = str(
            follow_in_terminal(run, console=console, timeout_s=timeout_s, traceback=traceback)
        )
        if final in EXIT_CODES and is_program(run.record):
            _print_last_lines(run, console)
    if final not in EXIT_CODES:
        console.print(f"Still {final} after {timeout_s:g} s. Watch it again: llmops wait {run.id}")
        raise typer.Exit(124)
    if EXIT_CODES[final]:
        raise typer.Exit(EXIT_CODES[final])


def _print_last_lines(run: Run, console: Console) -> None:
    from llmops_kernel.errors import LLMOpsError
    from llmops_kernel.services.types import printed_lines

    try:
        lines = printed_lines(run.log(), _LAST_LINES)
    except LLMOpsError:
        return  # Its cluster does not answer any more; the run's end is shown already.
    if lines:
        console.print(f"\nLast lines (all of them: llmops logs {run.id})", style="bold")
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def detached(run_id: str) -> Iterator[None]:
    """On Ctrl-C, exit with 130 and say that the run continues."""
    from llmops_kernel.cli.console import out

    try:
        yield
    except KeyboardInterrupt:
        console = out(stderr=True)
        console.print(f"\nDetached; run {run_id} continues.")
        console.print(
            f"  Watch it again: llmops wait {run_id}\n  Stop it:        llmops stop {run_id}"
        )
        raise typer.Exit(130) from None


def _wait_quietly(run: Run, *, timeout_s: float | None) -> None:
    from llmops_kernel.cli.console import print_json

    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    with detached(run.id):
        while run.state not in EXIT_CODES:
            if deadline_s is not None and time.monotonic() > deadline_s:
                break
            time.sleep(0.5)
    print_json({"run_id": run.id, **run.view.summary()})
    raise typer.Exit(EXIT_CODES.get(run.state, 124))


def _follow_logs(run: Run, *, printed: str, all_lines: bool) -> None:
    with detached(run.id):
        while True:
            ended = run.state in EXIT_CODES
            text = run.logs(all_lines=all_lines)
            echo_log(unseen(printed, text))
            printed = text or printed
            if ended:
                return
            time.sleep(1)


def unseen(printed: str, text: str) -> str:
    """Return the part of `text` after what was shown, which may be its last lines only."""
    if not printed:
        return text
    start = text.rfind(printed)
    return text[start + len(printed) :] if start >= 0 else text


# --- `llmops score`: submit a score config and follow it ---


Changes = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to the config.", metavar="[SECTION.FIELD=VALUE]..."),
]
MakeEnv = Annotated[
    bool,
    typer.Option(
        "--make-env/--no-env",
        help="Make vLLM's environment on this machine, once, where the config may use it.",
    ),
]


@command(RUNS, example="llmops score tags.score.yaml model.run=last")
def score(
    config: Annotated[Path, typer.Argument(help="Score config.", metavar="FILE")],
    overrides: Changes = None,
    cluster: OnCluster = "local",
    workspace: Workspace = None,
    follow: Follow = True,
    make_env: MakeEnv = True,
    as_json: AsJson = False,
) -> None:
    """Score a table: a model's answer for each row, with metrics, as Parquet.

    Ctrl-C stops watching, not the run. `llmops retry` continues a run that was stopped or has
    failed.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    target = api.cluster(cluster)
    run = target.score(
        config,
        overrides=overrides or (),
        workspace=workspace,
        make_env=make_env,
        progress=lines_on(out(stderr=True)),
    )
    if as_json:
        return _print_submitted(run)
    return submitted(run, cluster=cluster, follow=follow)


# --- Files of a submission: the list of `llmops submit --dry-run`, and the excluded ones ---


def print_upload(request: Submission) -> None:
    """Print each file that a submission would upload; nothing is written or sent."""
    from llmops_kernel.cli.console import echo, out
    from llmops_kernel.config.counted import counted
    from llmops_kernel.services import submission
    from llmops_kernel.views.format import byte_size

    contents = submission.preview(request)
    width = max((len(name) for name in contents.files), default=0)
    for name, entry in contents.files.items():
        echo(f"{name:{width}}  {byte_size(entry.size_bytes)}")
    count, size = len(contents.files), byte_size(contents.size_bytes)
    echo(f"{counted(count, 'file')}, {size}, would be uploaded from {contents.root}")
    if line := submission.about_left_out(contents.left_out):
        out(stderr=True).print(line, markup=False)
