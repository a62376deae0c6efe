"""`llmops init | schema | check`: training configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from llmops_kernel.cli.app import CONFIGS, command
from llmops_kernel.cli.submit_commands import Overrides


@command(CONFIGS, example="llmops init my.train.yaml --model tiny-llama --method full")
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("lora.train.yaml"),
    model: Annotated[str, typer.Option(help="Catalogue name, folder or hub id.")] = (
        "SmolLM2-135M-Instruct"
    ),
    data: Annotated[str, typer.Option(help="Training rows.")] = "data/train.jsonl",
    method: Annotated[str, typer.Option(help="`lora` or `full`.")] = "lora",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a training config with every field explained."""
    from llmops_kernel.cli.console import out
    from llmops_kernel.config.template import training_template

    text = training_template(model=model, train=data, method=method)
    write_new(path, text, force=force)
    out().print(f"Wrote {path}. Next: llmops check {path}")


def write_new(path: Path, text: str, *, force: bool, with_folder: bool = False) -> None:
    """Raises ConfigError when the file is there, unless `force`, or cannot be written."""
    from llmops_kernel.errors import ConfigError

    try:
        if with_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists.", remedy="choose another name, or --force to overwrite it"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", remedy="choose another folder"
        ) from error


@command(CONFIGS, example="llmops schema > train.schema.json")
def schema() -> None:
    """Print the JSON schema of training configs, for editors."""
    from llmops_kernel.config.schema import training_schema

    typer.echo(json.dumps(training_schema(), indent=2))


@command(CONFIGS, example="llmops check lora.train.yaml training.max_steps=20")
def check(
    config: Annotated[Path, typer.Argument(help="Training config, YAML.", metavar="CONFIG")],
    overrides: Overrides = None,
    workspace: Annotated[
        Path | None, typer.Option(help="Folder that relative paths start from.")
    ] = None,
) -> None:
    """Tell every mistake of a config and its data at once, without starting anything."""
    from llmops_kernel.cli.console import facts, out, plain
    from llmops_kernel.config.effect import batch_words
    from llmops_kernel.config.load import check_files, load_training_config
    from llmops_kernel.errors import ConfigError

    loaded = load_training_config(config, overrides or ())
    problems = check_files(loaded, workspace or config.absolute().parent)
    if problems:
        raise ConfigError(
            "\n".join(str(problem) for problem in problems),
            remedy="correct these files; nothing was started",
        )
    pairs = {
        "config": f"{plain(str(config))} is [green]right[/]",
        "model": plain(loaded.model.id),
        "data": plain(loaded.data.train),
        "method": f"{loaded.method.type}, {loaded.parallelism.strategy}",
        "global batch size": batch_words(loaded),
    }
    out().print(facts(pairs))
