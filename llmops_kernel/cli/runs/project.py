"""`llmops project list | show | move | rule`: the phases of projects, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from llmops_kernel.cli.app import EXAMPLES, RUNS, app
from llmops_kernel.cli.complete import runs as complete_run

_EXAMPLE = "llmops project move last --to candidate --project menus"
EXAMPLES["project"] = _EXAMPLE
_RULE = "llmops project rule menus --phase released --scoring menus --figure exact_match"

group = typer.Typer(
    no_args_is_help=True,
    help="Projects: which run is prototype, candidate and released, and the rules for that.",
)
app.add_typer(group, name="project", rich_help_panel=RUNS, epilog=f"Example: {_EXAMPLE}")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@group.command("list", epilog="Example: llmops project list")
def list_(as_json: AsJson = False) -> None:
    """List the projects with the run of each phase."""
    from llmops_kernel.cli import console
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.projects import projects

    every = projects(current())
    rows = [[each.name, len(each.runs), *each.phases.values()] for each in every]
    names = ["project", "runs", *(every[0].phases if every else ())]
    if as_json:
        console.print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif not rows:
        console.out().print(
            "No project yet. Begin one: llmops submit --project NAME, or llmops tag"
        )
    else:
        lines = [[console.plain(str(cell or "–")) for cell in row] for row in rows]
        console.out().print(console.table(names, lines, right=["runs"], whole=["project"]))


@group.command(epilog="Example: llmops project show menus")
def show(
    project: Annotated[str, typer.Argument(help="Name of a project.", metavar="PROJECT")],
    as_json: AsJson = False,
) -> None:
    """Show the phases of a project, their rules, and who moved which run, when and why."""
    from llmops_kernel import api
    from llmops_kernel.cli import console

    target = api.project(project)
    target.note_phases()
    if as_json:
        state = target.state
        events = [each.model_dump(mode="json", exclude_defaults=True) for each in state.events]
        console.print_json({"project": target.name, "phases": target.phases, "events": events})
        return
    out = console.out()
    lines = [[*map(console.plain, row)] for row in target.table()]
    out.print(console.table(["phase", "run", "since", "by", "rule"], lines, whole=["run"]))
    out.print(f"{len(target.runs)} runs: llmops runs --where \"project == '{target.name}'\"")
    for line in target.history():
        out.print(line, markup=False)


@group.command(epilog=f"Example: {_EXAMPLE}")
def move(
    run: Annotated[str, typer.Argument(help="A run.", autocompletion=complete_run)],
    to: Annotated[str, typer.Option(help="`prototype`, `candidate`, `released`, or `none`.")],
    project: Annotated[str, typer.Option(help="Project; default: the run's own.")] = "",
    why: Annotated[str, typer.Option(help="Reason, for the history.")] = "",
    force: Annotated[
        str, typer.Option(help="Move it although its check has not passed, for this reason.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the check and what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Move a run to a phase of its project, if the phase's rule allows it.

    What the move would export, tag and delete is shown first; a move that deletes checkpoints
    asks for confirmation. An export that fails moves nothing. `--to none` takes a run out.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    console, target = out(), api.attach(run)
    plan = target.move(to, project=project, dry_run=True)
    console.print(str(plan), markup=False)
    if dry_run:
        return
    is_allowed = plan.check.passed or force.strip()
    if is_allowed and plan.checkpoints and plan.checkpoints.folders and not yes:
        typer.confirm("Delete these checkpoints?", abort=True)
    errors = out(stderr=True)
    target.move(
        to,
        project=project,
        why=why,
        force=force,
        progress=lambda text: errors.print(text, markup=False),
    )
    console.print(f"Run {target.id} is now {plan.phase} of {plan.project}.", markup=False)


@group.command(epilog=f"Example: {_RULE}")
def rule(
    project: Annotated[str, typer.Argument(help="Name of a project.", metavar="PROJECT")],
    phase: Annotated[str, typer.Option(help="`prototype`, `candidate` or `released`.")],
    scoring: Annotated[
        str | None, typer.Option(help="Score config by name, or a run of it; empty: no check.")
    ] = None,
    figure: Annotated[str | None, typer.Option(help="Metric that must not be worse.")] = None,
    margin: Annotated[
        float | None, typer.Option(help="How much worse it may be at most, with 95 % confidence.")
    ] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Tag the run that is replaced.")
    ] = None,
    export: Annotated[
        str | None, typer.Option(help="Export the run first: `merged`, `vllm`, `gguf`, `triton`.")
    ] = None,
    export_path: Annotated[str | None, typer.Option(help="Folder for the exports.")] = None,
    delete_checkpoints: Annotated[
        str | None,
        typer.Option(help="Whose checkpoints are deleted: `replaced`, `moved`, or empty: none."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the rule first.")] = False,
) -> None:
    """Show the rule of a phase, or change the parts that are given.

    The run's newest scoring is compared, row by row, with that of the run that has the phase. It
    is refused where it is clearly worse, beyond the 95 % interval; with --margin where it may be
    worse by more than that; and where a scoring is missing, with the command that makes it.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out, plain

    values = {
        "scoring": scoring,
        "figure": "" if scoring == "" else figure,
        "margin": margin,
        "archive": archive,
        "export": export,
        "export_path": export_path,
        "delete_checkpoints": delete_checkpoints,
    }
    changes = {key: value for key, value in values.items() if value is not None}
    now = api.project(project).rule(phase, clear=clear, **changes)
    shown = {key: plain("–" if value in ("", None) else str(value)) for key, value in now}
    out().print(facts(shown))
