"""`llmops init | schema | check`: configs of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from llmops_kernel.cli.app import CONFIGS, command


@command(CONFIGS, example="llmops init my.train.yaml --model tiny-llama --method full")
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("lora.train.yaml"),
    model: Annotated[str, typer.Option(help="Catalogue name, folder or hub id.")] = (
        "SmolLM2-135M-Instruct"
    ),
    data: Annotated[str, typer.Option(help="Training rows.")] = "data/train.jsonl",
    method: Annotated[str, typer.Option(help="`lora`, `qlora` or `full`.")] = "lora",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a config with every field explained: a training config, or x.script.yaml, ..."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.services import configs

    configs.init(path, model=model, data=data, method=method, force=force)
    out().print(f"Wrote {path}. Next: llmops check {path}")


@command(CONFIGS, example="llmops schema > train.schema.json")
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of run: `train` or `script`.")] = "train",
) -> None:
    """Print the JSON schema of a kind's configs, for editors."""
    from llmops_kernel.services.configs import schema as schema_of

    typer.echo(json.dumps(schema_of(kind), indent=2))


@command(CONFIGS, example="llmops check lora.train.yaml training.max_steps=20")
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Configs or cluster templates; `section.field=value` overrides a field in each.",
            metavar="FILE... [KEY=VALUE...]",
        ),
    ],
    workspace: Annotated[
        Path | None, typer.Option(help="Folder that relative paths start from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report all mistakes in configs and in the files they name. Nothing is started.

    The exit code is 0 if every file is valid, else 1.
    """
    from llmops_kernel.cli.config_check import check_all, report

    overrides = [one for one in files if "=" in one and not Path(one).exists()]
    paths = [Path(one) for one in files if one not in overrides]
    if not paths:
        raise typer.BadParameter("give at least one file to check")
    found = check_all(paths, overrides, workspace=workspace)
    report(found, as_json=as_json)
    raise typer.Exit(0 if all(one.is_valid for one in found) else 1)
