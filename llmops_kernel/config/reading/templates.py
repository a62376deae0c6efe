"""Find and load cluster templates: a file, a name, or one that is shipped."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from llmops_kernel.config.models.cluster import TEMPLATES, AnyTemplate, ClusterTemplate, model_of
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.reading.check import resolved
from llmops_kernel.config.reading.document import Document, read_yaml

BUILT_IN: Final = ("local",)
FOLDER: Final = "cluster_templates"
NOT_TEMPLATES: Final = ("rbac",)
"""Files in FOLDER that are YAML of another kind, by name without the extension."""


def without_unknown_provider(document: Document) -> Document:
    """Report an unknown provider and drop it, so that the rest can be checked."""
    provider = document.data.get("provider", "local")
    if isinstance(provider, str) and provider in TEMPLATES:
        return document
    hint = did_you_mean(str(provider), TEMPLATES)
    problem = document.origins.problem(
        ("provider",),
        f"must be one of {listed(TEMPLATES)}",
        value=provider,
        hint=hint or "write `provider: kuberay` for a cluster on Kubernetes",
    )
    data = {key: value for key, value in document.data.items() if key != "provider"}
    return replace(document, data=data, problems=[*document.problems, problem])


def template_from(document: Document, *, name: str | None = None) -> AnyTemplate:
    """Check a template; `name` is used if it gives none. Raises ConfigError."""
    document = without_unknown_provider(document)
    if name is not None:
        document = replace(document, data={"name": name, **document.data})
    return resolved(model_of(document.data), document)


def load_cluster_template(name_or_path: Path | str = "local") -> AnyTemplate:
    """Load a file, or a name: of a file in `cluster_templates/`, a shipped or built-in template.

    Raises ConfigError with all problems of the file at once.
    """
    path = find_template(name_or_path)
    if path is None:
        return ClusterTemplate()
    document = read_yaml(path, remedy=f"see {FOLDER}/local.yaml for every field")
    return template_from(document, name=default_name(path))


def default_name(path: Path | str) -> str:
    """Return the name of a template that gives none: `big` for `big.cluster.yaml`."""
    return Path(path).name.split(".")[0].lower().replace("_", "-")


def find_template(name_or_path: Path | str) -> Path | None:
    """Return the template's file; None for a built-in one without a file. Raises ConfigError."""
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
    known = [stem for stem in known if stem not in NOT_TEMPLATES]
    problem = Problem(
        path="cluster",
        message="there is no cluster template with this name",
        value=name,
        suggestion=did_you_mean(name, known) or f"known: {listed(known)}; or give a file's path",
    )
    raise config_error([problem], remedy=f"write {FOLDER}/{name}.yaml, or use 'local'")


def is_template(path: Path) -> bool:
    """Return whether a YAML file in FOLDER is a cluster template."""
    return path.stem not in NOT_TEMPLATES and path.is_file()


def shipped_folder() -> Path | None:
    """Return the folder of the templates that come with the package; None without one."""
    package = Path(__file__).parents[2]
    folders = (package / FOLDER, package.parent / FOLDER)  # installed, or a checkout
    return next((folder for folder in folders if (folder / "local.yaml").is_file()), None)


@cache
def shipped() -> dict[str, Path]:
    """Return the templates that come with the package, by name."""
    folder = shipped_folder()
    files = sorted(folder.glob("*.yaml")) if folder is not None else []
    return {file.stem: file for file in files if is_template(file) and file.stem not in BUILT_IN}
