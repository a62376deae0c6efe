"""Kinds of config files: how each is recognised, checked and explained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.config.assist.cursor import MOST_CHARACTERS, Outline, unquoted
from llmops_kernel.config.assist.schema import Schema, described
from llmops_kernel.config.assist.template import (
    block,
    cluster_template,
    pruned,
    training_template,
)
from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.cluster import TEMPLATES, ClusterTemplate
from llmops_kernel.config.models.fields import compact, spec_of
from llmops_kernel.config.models.section import Config, Section
from llmops_kernel.config.models.sections import CATALOGUE, DataConfig, TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.names import Alias
from llmops_kernel.config.problems import Problem, closest, did_you_mean, listed
from llmops_kernel.config.reading import model_folder
from llmops_kernel.config.reading.check import FileCheck, overlap
from llmops_kernel.config.reading.hook_file import check_hooks, defined_hooks
from llmops_kernel.config.reading.model_folder import TOO_LARGE, tokens_without_embedding
from llmops_kernel.config.reading.rows import RowRules, check_rows
from llmops_kernel.config.reading.templates import FOLDER, NOT_TEMPLATES


def training_effect(config: TrainingConfig) -> list[str]:
    """Describe what is trained on what, the batch size, and for how long."""
    model, training, objective = config.model, config.training, config.objective
    restarts = f"; {counted(training.max_failures, 'restart')} after a lost worker"
    precision = "" if model.dtype == "auto" else f" in {model.dtype}"
    return [
        f"Trains {start_words(config)}{precision} on {config.data.train_words}:"
        f" {config.method.describe()}.",
        *([f"Objective {objective.type}: {objective.summary}."] if objective.rows else []),
        f"Global batch size {batch_words(config)}.",
        f"{_length(config)}, {config.parallelism.strategy}, learning rate "
        f"{compact(config.optimizer.learning_rate)} ({config.optimizer.lr_scheduler_type})"
        f"{restarts if training.max_failures else ''}.",
    ]


def start_words(config: TrainingConfig) -> str:
    """Return the model's name, or `the result of run RUN`."""
    model = config.model
    if model.run is None:
        return model.id
    what = "the result" if model.step is None else f"step {model.step:,}"
    return f"{what} of {'the last run' if model.run == 'last' else f'run {model.run}'}"


def batch_words(config: TrainingConfig) -> str:
    """`16 = 4 sequences x 2 workers x 2 accumulation steps`."""
    micro, workers = config.micro_batch_size, config.parallelism.num_workers
    total, passes = config.training.global_batch_size, config.gradient_accumulation_steps
    if config.training.micro_batch_size == "auto":
        rows = counted(passes, "sequence")
        return f"{total} = {rows} x {counted(workers, 'worker')}, in the largest passes that fit"
    parts = ((micro, "sequence"), (workers, "worker"), (passes, "accumulation step"))
    return f"{total} = " + " x ".join(counted(number, noun) for number, noun in parts)


def training_facts(config: TrainingConfig) -> dict[str, str]:
    """Return what `llmops check` prints of a training config, by label."""
    return {
        "model": start_words(config),
        "data": config.data.train_words,
        **({"objective": config.objective.type} if config.objective.rows else {}),
        "method": f"{config.method.type}, {config.parallelism.strategy}",
        "global batch size": batch_words(config),
        "performance": f"{config.performance.describe()}, attention {config.model.attention}",
    }


def _length(config: TrainingConfig) -> str:
    training = config.training
    if training.max_steps is not None:
        return counted(training.max_steps, "step")
    return counted(training.num_epochs, "epoch")


def _no_files(_config: Any, _folder: Path, /, *, wrong: Collection[str] = ()) -> list[Problem]:
    del wrong
    return []


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of config file: all that editors, forms and checks need."""

    name: str
    title: str
    globs: tuple[str, ...]
    """Patterns of the end of a path; the first is the usual one."""
    new_file: str
    """Usual name of a new file."""
    model: type[Section]
    template: Callable[[], str]
    """Text of a new file, every field explained."""
    effect: Callable[[Any], list[str]]
    """Describes what a valid config does, one line each."""
    facts: Callable[[Any], dict[str, str]] | None = None
    """Returns what `llmops check` prints of a valid config, by label; None: its effect."""
    check_files: FileCheck = _no_files
    """Checks the files that a config names."""
    remedy: str = ""
    """The last line of an error that lists a config's mistakes."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dotted fields that name a file, with the extensions to offer; none: folders only."""
    named_by_file: bool = False
    """True if the file's name is the default of the field `name`."""
    models: Mapping[str, type[Section]] = field(default_factory=dict)
    """Models by the value of `provider`, for a kind with several; `model` is the usual one."""
    not_these: tuple[str, ...] = ()
    """Files that match the globs but are something else, by name without the extension."""

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """Names from elsewhere that a config of this kind may have."""
        return self.model.aliases if issubclass(self.model, Config) else {}

    def model_of(self, data: Mapping[str, Any]) -> type[Section]:
        """Return the model that these values are checked with."""
        return self.models.get(str(data.get("provider")), self.model)

    def matches(self, path: str | Path) -> bool:
        """Return whether a file is of this kind, by its path."""
        pure = PurePosixPath(str(path).replace("\\", "/"))
        return any(map(pure.match, self.globs)) and pure.stem not in self.not_these

    def schema_in(self, text: str) -> Schema:
        """Return the fields that a text may have, which need not be YAML yet.

        They depend on the provider and on the variants that it names, such as a method.
        """
        chosen = chosen_in_text(self.model, text)
        return described(self.model_of(chosen), chosen)


def chosen_in_text(model: type[Section], text: str) -> dict[str, Any]:
    """Return `{"provider": "kuberay"}`, `{"method": {"type": "full"}}`: only what is written."""
    if len(text) > MOST_CHARACTERS:
        return {}
    sections = {name: field.section for name, field in spec_of(model).fields.items()}
    short = {n: s.shorthand for n, s in sections.items() if s is not None and s.variants}
    chosen: dict[str, Any] = {}
    for entry in Outline(text).entries:
        value = unquoted(text[entry.value_start : entry.value_end])
        name = entry.path[0]
        if entry.path == ("provider",) and value:
            chosen["provider"] = value
        elif name in short and entry.path[1:] == (short[name],) and value:
            chosen[name] = {short[name]: value}
        elif name in short and len(entry.path) == 1 and value.isidentifier():
            chosen.setdefault(name, {short[name]: value})
    return chosen


def form_schema(kind: Kind, *, provider: str | None = None) -> Schema:
    """Return the fields of a kind, those of all variants, as a form needs them.

    A kind with several models has one form for each `provider`, which the form itself can change.
    """
    schema = {"title": kind.title, **described(kind.model_of({"provider": provider}))}
    if kind.models:
        schema["properties"]["provider"]["enum"] = list(kind.models)
    return schema


def render(kind: Kind, data: Mapping[str, Any]) -> str:
    """Write the name, required fields and what differs from the defaults, without a check."""
    model = kind.model_of(data)
    spec = spec_of(model)
    values = pruned(spec, data)
    named = spec.fields.get("name")
    if model is not kind.model:
        values = {"provider": data["provider"], **values}
    if "name" not in values and named is not None:
        values = {"name": data.get("name") or named.default, **values}
    return block(values, spaced=True)


# --- The local files that a training config names, checked before anything starts ---


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
    data = config.objective.read_as(config.data)
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
    if (
        not source
        or source in CATALOGUE
        or "://" in source
        or "build_model" in (defined_hooks(hooks) or ())
    ):
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


# --- The kinds ---


_ROWS = (".jsonl", ".json", ".parquet")
TRAIN = Kind(
    name="train",
    title="Training config",
    globs=("*.train.yaml", "*.train.yml"),
    new_file="new.train.yaml",
    model=TrainingConfig,
    template=training_template,
    effect=training_effect,
    facts=training_facts,
    check_files=check_files,
    remedy="`llmops init` writes a config with every field explained",
    files={
        "data.train": _ROWS,
        "data.train.-.path": _ROWS,
        "data.eval": _ROWS,
        "hooks.file": (".py",),
        "model.id": (),
    },
)
CLUSTER = Kind(
    name="cluster",
    title="Cluster template",
    globs=("*.cluster.yaml", "*.cluster.yml", f"{FOLDER}/*.yaml", f"{FOLDER}/*.yml"),
    new_file="new.cluster.yaml",
    model=ClusterTemplate,
    template=cluster_template,
    effect=lambda template: template.effect(),
    named_by_file=True,
    models=TEMPLATES,
    not_these=NOT_TEMPLATES,
)
