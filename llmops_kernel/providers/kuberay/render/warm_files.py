"""The files that let a stock image start warm workers: the content of the ConfigMap, and paths."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from llmops_kernel import warm
from llmops_kernel.config.models.section import WarmSettings
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.warm.for_jobs import keep_environment
from llmops_kernel.warm.launcher import DIR_ENV_VAR
from llmops_kernel.warm.start_hook import PRELOAD_ENV_VAR

_WARM: Final = Path(warm.__file__).parent
_HOOK: Final = "llmops_warm_hook"
_FOR_JOBS: Final = ("for_jobs.py",)
"""Files that are read in a job, which brings its own copy."""
_OTHERS: Final = (
    *("__init__.py", "version.py"),
    *("hardware/__init__.py", "hardware/load.py", "hardware/priority.py"),
)
"""Modules of the rest of the package that they need."""
_CODE_VOLUME: Final = "llmops-warm-code"
_FOLDER_VOLUME: Final = "llmops-warm"


@cache
def files() -> dict[str, str]:
    """Return path below `code` of the hook -> text. The files need only the standard library."""
    package = _WARM.parent
    modules = sorted(path for path in _WARM.glob("*.py") if path.name not in _FOR_JOBS)
    paths = [*(package / name for name in _OTHERS), *modules]
    return {str(path.relative_to(package.parent)): path.read_text() for path in paths}


def config_map(cluster: str, *, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    hook = _WARM / "pods" / f"{_HOOK}.py"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.warm_config_map(cluster),
            "namespace": namespace,
            "labels": labels,
        },
        # Keys have no slashes, modules no dashes; the hook restores the package's folders.
        "data": {hook.name: hook.read_text()}
        | {path.replace("/", "-"): text for path, text in files().items()},
    }


def volumes(cluster: str) -> list[dict[str, Any]]:
    return [
        {"name": _CODE_VOLUME, "configMap": {"name": names.warm_config_map(cluster)}},
        {"name": _FOLDER_VOLUME, "emptyDir": {}},
    ]


def mounts() -> list[dict[str, Any]]:
    return [
        {"name": _CODE_VOLUME, "mountPath": names.WARM_CODE_DIR, "readOnly": True},
        {"name": _FOLDER_VOLUME, "mountPath": names.WARM_DIR},
    ]


def environment(settings: WarmSettings, *, python_path: str | None) -> dict[str, str]:
    """Return the variables. They replace an image's own PYTHONPATH; a template's is kept."""
    env = {
        "PYTHONPATH": ":".join(filter(None, [names.WARM_CODE_DIR, python_path])),
        "RAY_START_HOOK": f"{_HOOK}.configure",
        # Below the mount: the folder must belong to the user that Ray runs as.
        DIR_ENV_VAR: f"{names.WARM_DIR}/node",
    }
    env |= keep_environment(settings)
    return env | ({PRELOAD_ENV_VAR: " ".join(settings.preload)} if settings.preload else {})
