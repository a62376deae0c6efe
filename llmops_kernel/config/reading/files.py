"""Check the local files that a config names, on the client, before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.sections import CATALOGUE, DataConfig, TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import Problem, closest, did_you_mean, listed
from llmops_kernel.config.reading import model_folder
from llmops_kernel.config.reading.check import overlap
from llmops_kernel.config.reading.hook_file import check_hooks, defined_hooks
from llmops_kernel.config.reading.model_folder import TOO_LARGE, tokens_without_embedding
from llmops_kernel.config.reading.rows import RowRules, check_rows

_READ = {".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".txt", ".arrow"}
_FILE_LIKE = {*_READ, ".gz", ".zst", ".xz"}
_PATTERN = frozenset("*?[")
_WEIGHTS = ("*.safetensors", "*.bin", "*.safetensors.index.json")


def check_files(
    config: TrainingConfig, workspace: Path, *, wrong: Collection[str] = ()
) -> list[Problem]:
    """Return what is wrong with the config's local data, hooks and model.

    Hub ids and URLs are not read. Relative paths start at `workspace`. Data files are read row by
    row (or `max_rows` of them), of those above 64 MiB the first 8; the workers check the rest. What
    depends on a field in `wrong`, whose value is not known, is not checked.
    """
    hooks = _hooks_path(config, workspace)
    return [
        *check_hooks(hooks, workspace, config.hooks.file),
        *_check_data(config, workspace, hooks, wrong),
        *([] if _any_of(wrong, "model.id", "hooks") else _check_model(config, workspace, hooks)),
    ]


def _any_of(wrong: Collection[str], *paths: str) -> bool:
    return any(overlap(path, one) for path in paths for one in wrong)


def _hooks_path(config: TrainingConfig, workspace: Path) -> Path | None:
    return None if config.hooks.file is None else workspace / Path(config.hooks.file).expanduser()


def _check_data(
    config: TrainingConfig, workspace: Path, hooks: Path | None, wrong: Collection[str]
) -> Iterator[Problem]:
    data = config.data
    # With a hooks file that does not parse, rows may have any shape.
    names = defined_hooks(hooks)
    formatted = hooks is not None and (names is None or "format_example" in names)
    formatted = formatted or _any_of(wrong, "hooks.file", "data.format", "data.columns")
    skips = data.on_error == "skip"
    sources = [
        (name, one.path, RowRules(one.format, data.max_rows, one.columns or {}, skips=skips))
        for name, one in _sources(data)
    ]
    if data.eval is not None:
        answers = config.evaluation.generate
        rules = RowRules(data.format, data.max_eval_rows, data.columns, answers=answers)
        sources.append(("data.eval", data.eval, rules))
    for name, source, rules in sources:
        if "://" not in source and not _any_of(wrong, name):
            found = workspace / Path(source).expanduser()
            wanted = replace(rules, row_format=None) if formatted else rules
            yield from _check_source(name, source, found, wanted)


def _sources(data: DataConfig) -> Iterator[tuple[str, TrainSource]]:
    """Yield the sources of training rows, each with the field that names it."""
    for number, source in enumerate(data.sources):
        yield f"data.train.{number}.path" if data.is_mixture else "data.train", source


def _check_source(name: str, source: str, path: Path, rules: RowRules) -> Iterator[Problem]:
    if _PATTERN & set(source) and any(path.parent.glob(path.name)):
        return  # The workers read the files.
    if not path.exists():
        yield from _absent(name, source, path, kind="file")
    elif path.is_dir():
        yield from _check_folder(name, source, path)
    elif path.suffix not in _READ:
        hint = "give rows as .jsonl (one JSON object per line), .parquet, .csv, .txt or .arrow"
        yield _problem(
            name, source, f"files ending in {path.suffix or 'nothing'} are not read", hint
        )
    elif path.stat().st_size == 0:
        yield _problem(name, source, "the file is empty", "write one JSON object per line")
    else:
        yield from check_rows(name, source, path, rules)


def _check_folder(name: str, source: str, path: Path) -> Iterator[Problem]:
    if not any(path.iterdir()):
        yield _problem(name, source, "the folder is empty", "name a .jsonl or .parquet file")


def _absent(name: str, source: str, path: Path, *, kind: str) -> Iterator[Problem]:
    """Report a missing file, unless the name may be a hub id."""
    siblings = _siblings(path)
    hint = did_you_mean(path.name, siblings)
    certain = source.startswith(("/", ".", "~")) or source.count("/") > 1
    certain = certain or (kind == "file" and path.suffix in _FILE_LIKE)
    if not certain and not (hint and "/" in source):
        return  # `org/name` or `name` may be a hub id
    if not hint and siblings:
        hint = f"there are: {listed(siblings)}"
    if not path.parent.is_dir():
        hint = f"the folder {path.parent} does not exist either; paths start at the workspace"
    yield _problem(name, source, f"no such {kind}: {path}", hint)


def _siblings(path: Path) -> list[str]:
    try:
        return sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    except OSError:
        return []


def _check_model(config: TrainingConfig, workspace: Path, hooks: Path | None) -> Iterator[Problem]:
    name, source = "model.id", config.model.id
    if source in CATALOGUE or "://" in source or "build_model" in (defined_hooks(hooks) or ()):
        return
    path = workspace / Path(source).expanduser()
    if path.is_dir():
        if model_folder.is_adapter(path):
            if found := model_folder.conflict(config, path):
                yield _problem(name, source, *found)
        else:
            yield from _check_model_folder(name, source, path)
    elif path.exists():
        yield _problem(name, source, "is a file", f"name the model's folder, {path.parent}")
    elif "/" not in source and (match := closest(source, CATALOGUE, cutoff=0.8)):
        # Close to a built-in name and no organisation before it: misspelt, not a hub id.
        yield _problem(name, source, "there is no model with this name", f"did you mean {match}?")
    else:
        yield from _absent(name, source, path, kind="folder")


def _check_model_folder(name: str, source: str, path: Path) -> Iterator[Problem]:
    if not (path / "config.json").exists():
        hint = "name a folder written by save_pretrained"
        yield _problem(name, source, "the folder has no config.json", hint)
    elif not any(any(path.glob(pattern)) for pattern in _WEIGHTS):
        hint = (
            "copy the .safetensors files into it, or define build_model(config) in the hooks file"
        )
        yield _problem(name, source, "the folder has no weights", hint)
    elif found := tokens_without_embedding(path):
        yield _problem(name, source, found, TOO_LARGE)


def _problem(path: str, value: Any, message: str, suggestion: str) -> Problem:
    return Problem(path=path, value=value, message=message, suggestion=suggestion)
