"""The kinds of config files: how a file is recognised, checked and explained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from llmops_kernel.config.assist.effect import cluster_effect, training_effect
from llmops_kernel.config.assist.template import cluster_template, training_template
from llmops_kernel.config.assist.text.chosen import choices_in
from llmops_kernel.config.models.choice import view_for
from llmops_kernel.config.models.cluster import TEMPLATES, ClusterTemplate
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.reading.files import check_files
from llmops_kernel.config.reading.templates import FOLDER, NOT_TEMPLATES


class FileCheck(Protocol):
    """Checks the files that a config names, except what depends on `wrong` fields."""

    def __call__(
        self, config: Any, folder: Path, /, *, wrong: Collection[str] = ()
    ) -> list[Problem]: ...


def _no_files(_config: Any, _folder: Path, /, *, wrong: Collection[str] = ()) -> list[Problem]:
    del wrong
    return []


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of config file: all that editors, forms and checks need."""

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
    check_files: FileCheck = _no_files
    """Checks the files that a config names."""
    named_by_file: bool = False
    """Whether the file's name is the default of the field `name`."""
    models: Mapping[str, type[Section]] = field(default_factory=dict)
    """Models by the value of `provider`, for a kind with several; `model` is the usual one."""
    not_these: tuple[str, ...] = ()
    """Files that match the globs but are something else, by name without the extension."""

    def model_of(self, data: Mapping[str, Any]) -> type[Section]:
        """Return the model that these values are checked with."""
        return self.models.get(str(data.get("provider")), self.model)

    def view_of(self, data: Mapping[str, Any]) -> type[Section]:
        """Return the model with the variants that these values choose, such as a method."""
        return view_for(self.model_of(data), data)

    def view_in(self, text: str) -> type[Section]:
        """Like `view_of`, for a text that need not be YAML yet."""
        return self.view_of(choices_in(self.model, text))


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
    """Return the kind of a file by its path; None for any other file."""
    pure = PurePosixPath(str(path).replace("\\", "/"))
    found = (
        kind
        for kind in KINDS.values()
        if any(map(pure.match, kind.globs)) and pure.stem not in kind.not_these
    )
    return next(found, None)


def kind_named(name: str) -> Kind:
    """Return a kind. Raises ConfigError for an unknown name."""
    if name in KINDS:
        return KINDS[name]
    hint = did_you_mean(name, KINDS) or f"known: {listed(KINDS)}"
    problem = Problem(path="kind", message="no such kind of config", value=name, suggestion=hint)
    raise config_error([problem], remedy=f"name one of {listed(KINDS)}")
