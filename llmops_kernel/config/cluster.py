"""The cluster template: what a cluster is made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from pydantic import Field

from llmops_kernel.config.check import validated
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.sections import NAME_PATTERN, Section, WarmSettings
from llmops_kernel.config.shape import at
from llmops_kernel.config.yaml_source import Source, read_yaml

BUILT_IN = ("local",)
FOLDER = "cluster_templates"
NOT_TEMPLATES = ("rbac",)
"""Files of FOLDER that are YAML of another kind, by their name without the ending."""
_SMALLEST_STORE_BYTES = 75 * 1024 * 1024  # Ray's own minimum


class ClusterTemplate(Section):
    """Everything `llmops.up` needs; the same file gives the same cluster."""

    name: str = Field(default="local", pattern=NAME_PATTERN)
    """Name of the cluster: lower-case letters, digits and dashes. Default: the file's name."""
    provider: Literal["local"] = "local"
    """Who makes the cluster: `local` starts a Ray head on this machine."""
    num_cpus: int | None = Field(default=None, ge=1)
    """CPUs that Ray may give to workers; `null`: all of the machine's."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that Ray may give to workers; `null`: all of the machine's."""
    object_store_memory_bytes: int | None = Field(default=None, ge=_SMALLEST_STORE_BYTES)
    """Size of Ray's shared object store in bytes; `null`: chosen from the machine's memory."""
    dashboard_port: int | None = Field(default=None, ge=1, le=65535)
    """Port of Ray's dashboard on the loopback address; `null`: a free one."""
    stop_wait_s: float = Field(default=120.0, ge=0)
    """Seconds a stopped run has to save its checkpoint before its processes are killed."""
    warm: WarmSettings = Field(default_factory=WarmSettings)
    """The fork server of each node."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the Ray processes, and so of every run; no secrets here."""


AnyTemplate = ClusterTemplate | KubeRayTemplate
TEMPLATES: Final[dict[str, type[AnyTemplate]]] = {
    "local": ClusterTemplate,
    "kuberay": KubeRayTemplate,
}
"""The model of a template by its `provider`."""


def model_of(data: Mapping[str, Any]) -> type[AnyTemplate]:
    """The model that a template's data are checked with; of an unknown provider the local one."""
    provider = data.get("provider")
    return (
        TEMPLATES.get(provider, ClusterTemplate) if isinstance(provider, str) else ClusterTemplate
    )


def without_unknown_provider(source: Source) -> Source:
    """The problem told once; what is left can be checked."""
    provider = source.data.get("provider", "local")
    if isinstance(provider, str) and provider in TEMPLATES:
        return source
    hint = did_you_mean(str(provider), TEMPLATES)
    problem = at(
        ("provider",),
        source.origins,
        f"must be one of {listed(TEMPLATES)}",
        value=provider,
        hint=hint or "write `provider: kuberay` for a cluster on Kubernetes",
    )
    data = {key: value for key, value in source.data.items() if key != "provider"}
    return Source(data, source.origins, [*source.problems, problem])


def template_from(source: Source, *, name: str | None = None) -> AnyTemplate:
    """`name` is that of a template that gives none. Raises ConfigError."""
    source = without_unknown_provider(source)
    data = source.data if name is None else {"name": name, **source.data}
    model = cast("type[Section]", model_of(data))
    found = validated(model, data, origins=source.origins, problems=source.problems)
    return cast("AnyTemplate", found)


def load_cluster_template(name_or_path: Path | str = "local") -> AnyTemplate:
    """A template file, or a name: of a file in `cluster_templates/`, or shipped, or built in.

    Raises ConfigError with all problems of the file at once.
    """
    path = find_template(name_or_path)
    if path is None:
        return ClusterTemplate()
    source = read_yaml(path, remedy=f"see {FOLDER}/local.yaml for every field")
    return template_from(source, name=default_name(path))


def default_name(path: Path | str) -> str:
    """The name of a template that gives none: of `big.cluster.yaml` it is `big`."""
    return Path(path).name.split(".")[0].lower().replace("_", "-")


def find_template(name_or_path: Path | str) -> Path | None:
    """The file that it stands for; None for a built-in one without a file. Raises ConfigError."""
    name = str(name_or_path)
    path = Path(name).expanduser()
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        return path
    for folder in (Path(FOLDER), Path()):
        file = folder / f"{name}.yaml"
        if is_template(file):
            return file
    if name in BUILT_IN:
        return None
    if name in shipped():
        return shipped()[name]
    known = sorted({*BUILT_IN, *shipped(), *(f.stem for f in Path(FOLDER).glob("*.yaml"))})
    known = [one for one in known if one not in NOT_TEMPLATES]
    problem = Problem(
        path="cluster",
        message="no cluster template has that name",
        value=name,
        suggestion=did_you_mean(name, known) or f"known: {listed(known)}; or give a file's path",
    )
    raise config_error([problem], remedy=f"write {FOLDER}/{name}.yaml, or use 'local'")


def is_template(path: Path) -> bool:
    """Whether a YAML file of FOLDER is a cluster template."""
    return path.stem not in NOT_TEMPLATES and path.is_file()


@cache
def shipped() -> dict[str, Path]:
    """The templates that come with the package: to start from, or to use as they are."""
    package = Path(__file__).parents[1]
    folders = (package / FOLDER, package.parent / FOLDER)  # installed, or a checkout
    folder = next((folder for folder in folders if (folder / "local.yaml").is_file()), None)
    files = sorted(folder.glob("*.yaml")) if folder is not None else []
    return {file.stem: file for file in files if is_template(file) and file.stem not in BUILT_IN}
