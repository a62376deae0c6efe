"""`llmops doctor | demo | score-env | gc | version`: this machine and this installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmops_kernel.cli.app import MACHINE, command
from llmops_kernel.cli.console import echo, print_json


@command(MACHINE, example="llmops doctor --run --json")
def doctor(
    run: Annotated[
        bool,
        typer.Option("--run", help="Train a tiny model for 20 steps on a temporary cluster."),
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds that the training of --run may take.")
    ] = 150.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine and this installation. Exit code 1 if anything failed."""
    from llmops_kernel.cli.doctor_report import print_report

    raise typer.Exit(print_report(with_run=run, as_json=as_json, timeout_s=timeout_s))


@command(MACHINE, example="llmops demo")
def demo(
    workspace: Annotated[
        Path | None,
        typer.Option(help="Folder with lora.train.yaml and its data; default: the shipped one."),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            help="Number of steps; default: the config's, or fewer on a slow machine.", min=1
        ),
    ] = None,
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time",
            help="Seconds it may take; a slow machine makes fewer steps. Default: about 7 minutes.",
            min=1,
        ),
    ] = None,
) -> None:
    """Fine-tune SmolLM2-135M on the shipped data: the whole loop, live, in one command."""
    from llmops_kernel.cli.demo import run_demo

    raise typer.Exit(run_demo(workspace, max_steps=max_steps, time_s=time_s))


@command(MACHINE, name="score-env", example="llmops score-env")
def score_env(
    show: Annotated[
        bool, typer.Option("--show", help="Print its folder and whether it is ready.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Delete it.")] = False,
) -> None:
    """Make the Python environment of vLLM, which `llmops score` uses: some minutes, 4 GB."""
    from llmops_kernel.services import score_env as service

    if show:
        echo(f"{service.path()} {'ready' if service.ready() else 'not made'}")
    elif remove:
        removed = service.remove()
        echo("\n".join(f"removed {path}" for path in removed) or "there is none")
    else:
        echo(str(service.make(echo)))


@command(MACHINE, example="llmops gc --dry-run")
def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be removed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove leftovers of interrupted deletions, and packages of code that no run has used."""
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.runs import garbage, remove_garbage
    from llmops_kernel.views.format import byte_size

    items = garbage(current())
    removed = items if dry_run else [item for item in items if remove_garbage(item)]
    if as_json:
        names = ("path", "reason", "size_bytes", "num_files")
        rows = [{name: getattr(item, name) for name in names} for item in removed]
        print_json({"is_removed": not dry_run, "items": rows})
        return
    for item in removed:
        files = "1 file" if item.num_files == 1 else f"{item.num_files:,} files"
        echo(f"{item.path} ({byte_size(item.size_bytes)}, {files}): {item.reason}")
    total = byte_size(sum(item.size_bytes for item in removed))
    verb = "would be removed" if dry_run else "removed"
    echo(f"{verb}: {len(removed)} of {len(items)}, {total}")


@command(MACHINE, example="llmops version")
def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the versions of this package and of the libraries it uses."""
    from llmops_kernel.services.doctor_checks import installed_versions

    if as_json:
        print_json(installed_versions())
        return
    for name, installed in installed_versions().items():
        echo(f"{name} {installed}")
