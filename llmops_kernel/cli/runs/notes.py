"""`llmops star | note | rm`: mark, annotate and delete runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.runs.submit import RunRef

if TYPE_CHECKING:
    from llmops_kernel.services.types import DeletionPreview


@command(RUNS, example="llmops star last")
def star(
    run: RunRef = "last",
    off: Annotated[bool, typer.Option("--off", help="Remove the star.")] = False,
) -> None:
    """Mark a run as worth keeping; `llmops runs --starred` lists such runs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    target = api.attach(run)
    if off:
        target.unstar()
    else:
        target.star()
    out().print(f"{'Star removed' if off else 'Starred'}: {target.id}")


@command(RUNS, example='llmops note last "lower rate, same data" --title "lr 5e-5"')
def note(
    run: RunRef = "last",
    text: Annotated[str | None, typer.Argument(help="The note; `-` reads standard input.")] = None,
    title: Annotated[str | None, typer.Option(help="A readable title.")] = None,
) -> None:
    """Write or show a run's note and title; an empty text removes it."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out, plain

    target = api.attach(run)
    if title is not None:
        target.title = title
    if text is not None:
        target.note = sys.stdin.read() if text == "-" else text
    notes = target.notes
    shown = {"run": target.id, "title": notes.title, "note": notes.note or "–"}
    out().print(facts({name: plain(value) for name, value in shown.items()}))


@command(RUNS, example="llmops rm last --yes")
def rm(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run ids, their unique beginnings, or `last`.",
            metavar="RUN...",
            autocompletion=complete_run,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete runs that have ended, with their journals, logs, checkpoints and outputs.

    Shows what will be deleted and asks for confirmation. Deletes nothing if one has not ended.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out

    targets = list({run.id: run for run in map(api.attach, runs)}.values())
    for target in targets:
        out().print(facts(_described(target.deletion())))
    for target in targets:
        target.require_ended()
    if not yes:
        what = f"run {targets[0].id}" if len(targets) == 1 else f"these {len(targets)} runs"
        typer.confirm(f"Delete {what}?", abort=True)
    for target in targets:
        target.delete()
        out().print(f"Run {target.id} is deleted.")


def _described(preview: DeletionPreview) -> dict[str, str]:
    from llmops_kernel.cli.console import plain
    from llmops_kernel.views import format as fmt

    size = f"{fmt.byte_size(preview.size_bytes)} in {preview.num_files} files"
    lines = {
        "run": preview.run_id,
        "state": preview.state,
        "folder": preview.folder,
        "size": size,
        "checkpoints": "\n".join(preview.checkpoints),
        "outputs": "\n".join(preview.outputs),
        "kept": "\n".join(preview.kept),
        "resubmitted as": "\n".join(preview.children),
    }
    return {name: plain(value) for name, value in lines.items()}
