"""The cluster template: what a cluster is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from llmops_kernel.config.check import validated
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.sections import NAME_PATTERN, Section, WarmSettings
from llmops_kernel.config.yaml_source import read_yaml

BUILT_IN = ("local",)
FOLDER = "cluster_templates"
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


def load_cluster_template(name_or_path: Path | str = "local") -> ClusterTemplate:
    """A template file, or a name: of a file in `cluster_templates/`, or built in.

    Raises ConfigError with all problems of the file at once.
    """
    path = find_template(name_or_path)
    if path is None:
        return ClusterTemplate()
    source = read_yaml(path, remedy=f"see {FOLDER}/local.yaml for every field")
    data = {"name": default_name(path), **source.data}
    return validated(ClusterTemplate, data, origins=source.origins, problems=source.problems)


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
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    if name in BUILT_IN:
        return None
    known = sorted({*BUILT_IN, *(file.stem for file in Path(FOLDER).glob("*.yaml"))})
    problem = Problem(
        path="cluster",
        message="no cluster template has that name",
        value=name,
        suggestion=did_you_mean(name, known) or f"known: {listed(known)}; or give a file's path",
    )
    raise config_error([problem], remedy=f"write {FOLDER}/{name}.yaml, or use 'local'")
