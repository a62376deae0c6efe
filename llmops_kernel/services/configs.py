"""Configs of runs: check one with its files, and the JSON schema for editors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import ConfigError
from llmops_kernel.kinds import reading
from llmops_kernel.kinds.reading import ConfigLike, kind_of, load
from llmops_kernel.kinds.registry import USUAL
from llmops_kernel.services.check import CloseCheck, check_closely
from llmops_kernel.services.new_file import write_user_file

if TYPE_CHECKING:
    from llmops_kernel.services.gallery import WrittenExample

_ANSWERS: Final = {
    "model": "SmolLM2-135M-Instruct",
    "train": "data/train.jsonl",
    "method": "lora",
}


def file_kind_of(path: str | Path) -> Kind | None:
    """Return the kind of a config file by its path; None for any other file."""
    return reading.file_kind_of(path)


def check(
    config: ConfigLike,
    *,
    overrides: Overrides = (),
    workspace: Path | str | None = None,
    quick: bool = False,
) -> Any:
    """Return the resolved config, such as a `TrainingConfig`.

    Raises ConfigError with all mistakes of the config or its files. Relative paths start in
    `workspace`: by default the folder of the file, else the current one. Unless `quick`, some rows
    of a training config are formatted and tokenised, a hub id is looked up, the packages of
    trackers and the output's folder are tried; what need not stop a run is a Python warning.
    """
    path = Path(config) if isinstance(config, str | Path) else None
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    kind = kind_of(config)
    loaded = load(config, overrides, kind=kind)
    problems = reading.file_kind(kind).check_files(loaded, root)
    closely = CloseCheck() if quick else check_closely(loaded, root, problems=problems)
    if problems := [*problems, *closely.problems]:
        raise config_error(problems)
    for warning in closely.warnings:
        warnings.warn(str(warning), stacklevel=2)
    return loaded


def schema(kind: str = USUAL) -> dict[str, Any]:
    """Return the JSON schema of the configs of a kind of run: `train`, `script`."""
    from llmops_kernel.config.assist.schema import schema_of

    return schema_of(reading.run_file_kind_named(kind).model)


def init(
    path: str | Path | None = None,
    *,
    example: str | None = None,
    model: str = _ANSWERS["model"],
    data: str = _ANSWERS["train"],
    method: str = _ANSWERS["method"],
    force: bool = False,
) -> Path:
    """Write a config with every field explained, of the kind of its name; return its path.

    The default is `lora.train.yaml`; `model`, `data` and `method` are of a training config. Or
    write an `example` with its data: `chat`, `alpaca`, `continued-pretraining`, `zero3-offload`
    or `script`; then `path` may be a folder. Raises ConfigError if a file exists, unless `force`.
    """
    answers = {"model": model, "train": data, "method": method}
    if example is not None:
        return init_example(example, path, answers=answers, force=force).config
    return _new_config(Path(path or "lora.train.yaml"), answers, force=force)


def init_example(
    name: str,
    path: str | Path | None = None,
    *,
    answers: Mapping[str, str] = _ANSWERS,
    force: bool = False,
) -> WrittenExample:
    """Write an example; return its files. Raises ConfigError for `answers` of a new config."""
    from llmops_kernel.services.gallery import write_example

    if answers != _ANSWERS:
        raise ConfigError(
            f"The example {name} has its own model, data and method.",
            remedy="edit its config, or change a value when you submit it: model=tiny-llama",
        )
    return write_example(name, path, force=force)


def _new_config(path: Path, answers: Mapping[str, str], *, force: bool) -> Path:
    from llmops_kernel.config.assist.template import training_template

    kind = file_kind_of(path)
    if kind is None or kind.name == USUAL:
        text = training_template(**answers)
    elif answers != _ANSWERS:
        raise ConfigError(
            f"{path} is not a training config: it has no model, data and method",
            remedy="leave them out, or name the file as *.train.yaml",
        )
    else:
        text = kind.template()
    write_user_file(path, text, force=force)
    return path
