"""Finds or starts the engine's replicas on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmops_kernel.driver.engines import says_yes, standing
from llmops_kernel.errors import LLMOpsError, ModelError
from llmops_kernel.score.engine_actor import EngineActor
from llmops_kernel.score.engines.protocol import EngineSpec
from llmops_kernel.store.engine_names import NAMESPACE

_PREFIX = "engine-"
_PACKAGE = Path(__file__).parents[1]
_CONCURRENCY = 64
"""Calls at once: scorers, chats and questions about the state."""
_ANSWER_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The start of an engine's processes: spec, Python, code."""

    spec: EngineSpec
    keep_s: float
    on_node: int = 1
    """Engines of the job on a node, which share its cores; no part of the name."""
    python: str = ""
    """Interpreter of the engine's own environment; empty: the job's."""
    code: tuple[str, ...] = ()
    """Hashes of the engine's code: an actor that runs older code is not shared."""
    run: str = ""
    """Id of the run that starts or uses it."""

    def name(self, index: int) -> str:
        """Name of a replica's actor: equal for jobs that can share it."""
        options = {**self.spec.options, "python": self.python, "code": self.code}
        return f"{_PREFIX}{replace(self.spec, options=options).key}-{index}"


def code_of(spec: EngineSpec) -> tuple[str, ...]:
    """Return what changes with the code of this job's engine.

    Ray unpacks our package, and the user's workspace, in folders that are named by their content.
    """
    ours = _PACKAGE.parent.name
    return (ours, Path.cwd().name) if ":" in spec.type else (ours,)


def get_replica(deployment: Deployment, index: int) -> Any:
    """Return the actor of a replica, which is started unless it is there."""
    import ray

    spec = deployment.spec
    options: dict[str, Any] = {
        "name": deployment.name(index),
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": _CONCURRENCY,
    }
    if spec.num_gpus:
        options["num_gpus"] = spec.num_gpus
    runtime_env = _runtime_env(deployment)
    if runtime_env:
        options["runtime_env"] = runtime_env
    actor = ray.remote(EngineActor).options(**options)
    return actor.remote(
        spec, keep_s=deployment.keep_s, on_node=deployment.on_node, run=deployment.run
    )


def _runtime_env(deployment: Deployment) -> dict[str, Any]:
    if not deployment.python:
        return {}
    return {"py_executable": deployment.python}


def standing_replica(deployment: Deployment, index: int) -> Any:
    """Return the actor of a replica as it is now; None where there is none."""
    import ray

    try:
        return ray.get_actor(deployment.name(index), namespace=NAMESPACE)
    except ValueError:
        return None


def forget(deployment: Deployment, index: int) -> None:
    """End a replica that cannot load; the next job starts a new one."""
    import ray

    actor = standing_replica(deployment, index)
    if actor is not None:
        ray.kill(actor, no_restart=True)


def give_up(engines: Sequence[Any], *, caller: str) -> None:
    """End engines that this caller has started, and that are not loaded.

    One whose process runs knows who waits for it, and stays if another one does. One that does not
    answer has no process yet, so it waits for resources that it would take when nobody wants it
    any more: it is ended. Who waits for the same one starts it again: see `was_ended`.
    """
    import ray

    calls = {engine.give_up.remote(caller): engine for engine in engines}
    if calls:
        waited = list(calls)
        _, silent = ray.wait(waited, num_returns=len(waited), timeout=_ANSWER_S)
        for call in silent:
            ray.kill(calls[call], no_restart=True)


def was_ended(error: Exception) -> bool:
    """Return whether an engine left, or was ended, while somebody waited for it.

    A process that dies while it loads is another case: Ray starts it again, and says that it is
    not available.
    """
    import ray

    return isinstance(error, ray.exceptions.ActorDiedError)


def free_gpus(keep: Collection[str]) -> int:
    """Ask the engines with GPUs that have no work to leave, but for those of these names.

    Return how many leave.
    """
    import ray

    idle = [actor for name, actor in standing().items() if name not in keep]
    calls = [actor.leave.remote(only_idle=True, only_gpus=True) for actor in idle]
    if not calls:
        return 0
    answered, _ = ray.wait(calls, num_returns=len(calls), timeout=_ANSWER_S)
    return sum(map(says_yes, answered))


def load_failure(deployment: Deployment, error: Exception) -> LLMOpsError:
    """Return why an engine could not load, from what Ray raised."""
    import ray

    cause = getattr(error, "cause", None)
    reason = cause if isinstance(cause, LLMOpsError) else error
    if isinstance(reason, ray.exceptions.RayActorError):
        return ModelError(
            f"The engine's process died while it loaded {deployment.spec.model}.",
            remedy="probably memory ran out: use a smaller model or a node with more memory;"
            " the engine's log is in the Ray Dashboard",
        )
    if isinstance(reason, LLMOpsError):
        return reason
    return ModelError(f"The engine could not be started: {error}", remedy="llmops logs")
