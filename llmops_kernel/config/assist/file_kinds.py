"""Kinds of config files: how each is recognised, checked and explained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.names import Alias
from llmops_kernel.config.problems import Problem
from llmops_kernel.config.reading.check import FileCheck
from llmops_kernel.config.reading.files import check_files
from llmops_kernel.config.reading.templates import FOLDER, NOT_TEMPLATES


def training_effect(config: TrainingConfig) -> list[str]:
    """Describe what is trained on what, the batch size, and for how long."""
    model, training = config.model, config.training
    restarts = f"; {counted(training.max_failures, 'restart')} after a lost worker"
    precision = "" if model.dtype == "auto" else f" in {model.dtype}"
    return [
        f"Trains {model.id}{precision} on {config.data.train_words}: {config.method.describe()}.",
        f"Global batch size {batch_words(config)}.",
        f"{_length(config)}, {config.parallelism.strategy}, learning rate "
        f"{compact(config.optimizer.learning_rate)} ({config.optimizer.lr_scheduler_type})"
        f"{restarts if training.max_failures else ''}.",
    ]


def batch_words(config: TrainingConfig) -> str:
    """`16 = 4 sequences x 2 workers x 2 accumulation steps`."""
    micro, workers = config.training.micro_batch_size, config.parallelism.num_workers
    total, passes = config.training.global_batch_size, config.gradient_accumulation_steps
    parts = ((micro, "sequence"), (workers, "worker"), (passes, "accumulation step"))
    return f"{total} = " + " x ".join(counted(number, noun) for number, noun in parts)


def training_facts(config: TrainingConfig) -> dict[str, str]:
    """Return what `llmops check` prints of a training config, by label."""
    return {
        "model": config.model.id,
        "data": config.data.train_words,
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
