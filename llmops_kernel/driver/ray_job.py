"""The Ray job that a driver is: its metadata, its environment, and its start once more."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, NoReturn

from llmops_kernel.store.record import DRIVER_METADATA, JOB_CONFIG_ENV_VAR, RunSpec
from llmops_kernel.warm.launcher import START_REPORT_ENV_VAR
from llmops_kernel.warm.plan import REFUSE_ENV_VAR


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


def add_variables(
    variables: Mapping[str, str], *, env: MutableMapping[str, str] = os.environ
) -> None:
    """Set variables in all processes that Ray starts for this job from now on."""
    try:
        config = json.loads(env.get(JOB_CONFIG_ENV_VAR) or "{}")
    except ValueError:
        return
    job_env = config["runtime_env"] = config.get("runtime_env") or {}
    job_env["env_vars"] = {**(job_env.get("env_vars") or {}), **variables}
    env[JOB_CONFIG_ENV_VAR] = json.dumps(config)


def restart_cold(spec: RunSpec, why: str, *, variables: Mapping[str, str]) -> NoReturn:
    """Replace this driver by a plain interpreter with `variables`; its workers start so as well.

    Call it before the process has a thread, a connection to Ray or a part of the journal.
    """
    add_metadata(DRIVER_METADATA, spec.encode())
    add_variables({**variables, REFUSE_ENV_VAR: why})
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ.update(variables)
    if inherited and "PYTHONPATH" in variables:  # Ray's own has this package.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [variables["PYTHONPATH"], inherited])
        )
    os.environ[REFUSE_ENV_VAR] = why
    os.environ[START_REPORT_ENV_VAR] = f"cold: {why}"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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
