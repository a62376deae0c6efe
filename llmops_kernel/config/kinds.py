"""The kinds of config files: how a file is recognised, and what checks and explains it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.config.cluster import FOLDER, NOT_TEMPLATES, TEMPLATES, ClusterTemplate
from llmops_kernel.config.effect import cluster_effect, training_effect
from llmops_kernel.config.files import check_files
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.sections import Section
from llmops_kernel.config.template import cluster_template, training_template
from llmops_kernel.config.train import TrainingConfig

_PROVIDER = re.compile(r"""^provider:[ \t]*["']?([\w-]+)""", re.M)


def _no_files(_config: Any, _folder: Path) -> list[Problem]:
    return []


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One entry of the registry; editors, forms and checks ask nothing else."""

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
    """Of a valid config: what it works out to, a line each."""
    check_files: Callable[[Any, Path], list[Problem]] = _no_files
    """What is wrong with the files that a valid config names."""
    named_by_file: bool = False
    """Whether the file's name is the default of the field `name`."""
    models: Mapping[str, type[Section]] = field(default_factory=dict)
    """Models by the value of `provider`, for a kind with several; `model` is the usual one."""
    not_these: tuple[str, ...] = ()
    """Files that the globs fit and that are something else, by their name without the ending."""

    def model_of(self, data: Mapping[str, Any]) -> type[Section]:
        """The model that these values are checked with."""
        return self.models.get(str(data.get("provider")), self.model)

    def model_in(self, text: str) -> type[Section]:
        """Like `model_of`, for a text that need not be YAML yet."""
        found = _PROVIDER.search(text) if self.models else None
        return self.model_of({"provider": found[1]}) if found else self.model


TRAIN = Kind(
    name="train",
    title="Training config",
    globs=("*.train.yaml", "*.train.yml"),
    new_file="new.train.yaml",
    model=TrainingConfig,
    template=training_template,
    effect=training_effect,
    check_files=check_files,
)
CLUSTER = Kind(
    name="cluster",
    title="Cluster template",
    globs=("*.cluster.yaml", "*.cluster.yml", f"{FOLDER}/*.yaml", f"{FOLDER}/*.yml"),
    new_file="new.cluster.yaml",
    model=ClusterTemplate,
    template=cluster_template,
    effect=cluster_effect,
    named_by_file=True,
    models=TEMPLATES,
    not_these=NOT_TEMPLATES,
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (TRAIN, CLUSTER)}


def kind_of(path: str | Path) -> Kind | None:
    """The kind of a file by its path; None for any other file."""
    pure = PurePosixPath(str(path).replace("\\", "/"))
    found = (
        kind
        for kind in KINDS.values()
        if any(map(pure.match, kind.globs)) and pure.stem not in kind.not_these
    )
    return next(found, None)


def kind_named(name: str) -> Kind:
    """Raises ConfigError for a name that no kind has."""
    if name in KINDS:
        return KINDS[name]
    hint = did_you_mean(name, KINDS) or f"known: {listed(KINDS)}"
    problem = Problem(path="kind", message="no such kind of config", value=name, suggestion=hint)
    raise config_error([problem], remedy=f"name one of {listed(KINDS)}")
