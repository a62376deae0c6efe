"""`llmops star | note | rm`: what people add to a run, and how they are rid of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.submit_commands import RunRef

if TYPE_CHECKING:
    from llmops_kernel.runs.deletion import Doomed


@command(RUNS, example="llmops star last")
def star(
    run: RunRef = "last",
    off: Annotated[bool, typer.Option("--off", help="Take the star away.")] = False,
) -> None:
    """Mark a run as worth keeping; `llmops runs --starred` lists such runs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    target = api.attach(run)
    if off:
        target.unstar()
    else:
        target.star()
    out().print(f"{'Without a star' if off else 'Starred'}: {target.id}")


@command(RUNS, example='llmops note last "lower rate, same data" --title "lr 5e-5"')
def note(
    run: RunRef = "last",
    text: Annotated[str | None, typer.Argument(help="The note; `-` reads standard input.")] = None,
    title: Annotated[str | None, typer.Option(help="A name for people.")] = None,
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
    run: Annotated[str, typer.Argument(help="Run id, its unique beginning, or `last`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an ended run with its journal, logs, checkpoints and outputs; tells and asks first."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out

    target = api.attach(run)
    out().print(facts(_told(target.deletion())))
    if not yes:
        typer.confirm(f"Delete run {target.id}?", abort=True)
    target.delete()
    out().print(f"Run {target.id} is deleted.")


def _told(doomed: Doomed) -> dict[str, str]:
    from llmops_kernel.cli.console import plain
    from llmops_kernel.widgets import format as fmt

    size = f"{fmt.byte_size(doomed.size_bytes)} in {doomed.num_files} files"
    lines = {
        "run": doomed.run_id,
        "state": doomed.state,
        "folder": doomed.folder,
        "size": size,
        "checkpoints": "\n".join(doomed.checkpoints),
        "outputs": "\n".join(doomed.outputs),
        "stay": "\n".join(doomed.kept),
        "re-submitted as": "\n".join(doomed.children),
    }
    return {name: plain(value) for name, value in lines.items()}
