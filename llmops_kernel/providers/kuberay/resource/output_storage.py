"""Storage for outputs of runs, read from the environment of a RayCluster's head."""

from __future__ import annotations

from llmops_kernel.providers.capabilities import OutputStorage
from llmops_kernel.providers.kuberay.resource.objects import Obj, dig
from llmops_kernel.providers.kuberay.resource.status import is_autoscaled
from llmops_kernel.store.outputs import COPY_LIMIT_ENV_VAR, limit_of
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR


def output_storage_of(raycluster: Obj) -> OutputStorage:
    """Read it from what was applied: a template may have changed since."""
    env = head_environment(raycluster)
    return OutputStorage(
        runs=env.get(RUN_STORAGE_ENV_VAR) or None,
        copied_bytes=limit_of(env.get(COPY_LIMIT_ENV_VAR, "")),
        pods_go_when_idle=is_autoscaled(raycluster),
    )


def head_environment(raycluster: Obj) -> dict[str, str]:
    """Return the variables of the head's container; of a secret the value is empty."""
    containers = dig(raycluster, "spec", "headGroupSpec", "template", "spec", "containers") or [{}]
    variables = containers[0].get("env") or []
    return {variable["name"]: variable.get("value") or "" for variable in variables}
