"""The metadata of a Ray job: how workers that a script starts find the run that they belong to."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from typing import Any

from llmops_kernel.store.record.spec import JOB_CONFIG_ENV_VAR


def add_metadata(name: str, value: str, *, env: MutableMapping[str, str] = os.environ) -> None:
    """Add to the metadata of the Ray job that this process or its child becomes.

    Unlike an environment variable it leaves the runtime environment as it is, so that Ray need
    not make a new one for each run.
    """
    try:
        config = json.loads(env.get(JOB_CONFIG_ENV_VAR) or "{}")
    except ValueError:
        return
    config.setdefault("runtime_env", {})
    config["metadata"] = {**(config.get("metadata") or {}), name: value}
    env[JOB_CONFIG_ENV_VAR] = json.dumps(config)


def metadata() -> dict[str, Any]:
    """Return the metadata of the Ray job that this process is connected to."""
    from llmops_kernel.driver import compat

    try:
        # A worker has no public way to its job's metadata.
        core = getattr(compat.get("global_worker"), "core_worker", None)
    except (ImportError, AttributeError):
        return {}
    config = core.get_job_config() if core is not None else None
    return dict(config.metadata) if config is not None else {}
