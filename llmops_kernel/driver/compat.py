"""The private names of Ray that the driver and the workers use, each checked on Ray 2.60.0.

Ray may rename these in any release. Ask `missing` before you import `controller`; where one of
TRAIN is missing, the driver uses the public TorchTrainer instead (see `trainer`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKED_ON = "2.60.0"
Load = Callable[[str], Any]
"""From a module's name to the module; raises ImportError."""


@dataclass(frozen=True)
class PrivateName:
    path: str
    """`module:attribute.attribute`"""
    use: str
    without: str


_STOCK = "the stock TorchTrainer runs: 5 more processes, Ray's own restart policy"
_V2 = "ray.train.v2._internal"
_FEWER_LINES = "lines that differ from another worker's in numbers only are missing in the log"
TRAIN: dict[str, PrivateName] = {
    "TrainController": PrivateName(
        f"{_V2}.execution.controller:TrainController", "runs in the driver's process", _STOCK
    ),
    "worker_group_cls": PrivateName(
        f"{_V2}.execution.controller:TrainController.worker_group_cls",
        "makes the controller use our worker group",
        _STOCK,
    ),
    "WorkerGroup": PrivateName(
        f"{_V2}.execution.worker_group:WorkerGroup", "workers without a controller actor", _STOCK
    ),
    "init_train_context": PrivateName(
        f"{_V2}.execution.worker_group:WorkerGroup._init_train_context_on_workers",
        "passes no controller actor to the workers",
        _STOCK,
    ),
    "worker_group_module": PrivateName(
        f"{_V2}.execution.worker_group.worker_group", "its SynchronizationActor is left out", _STOCK
    ),
    "SynchronizationActor": PrivateName(
        f"{_V2}.execution.worker_group.worker_group:SynchronizationActor",
        "the actor behind ray.train.report, which no run calls",
        _STOCK,
    ),
    "state_module": PrivateName(
        f"{_V2}.execution.worker_group.state", "its _shutdown_sync_actor is left out", _STOCK
    ),
    "_shutdown_sync_actor": PrivateName(
        f"{_V2}.execution.worker_group.state:_shutdown_sync_actor",
        "ends the actor that is left out",
        _STOCK,
    ),
    "AcceleratorSetupCallback": PrivateName(
        f"{_V2}.callbacks.accelerators:AcceleratorSetupCallback", "shares the node's GPUs", _STOCK
    ),
    "BackendSetupCallback": PrivateName(
        f"{_V2}.callbacks.backend_setup:BackendSetupCallback", "makes the process group", _STOCK
    ),
    "TorchBackend": PrivateName(
        "ray.train.torch.config:_TorchBackend",
        "makes the process group of workers on several nodes",
        "the workers of one node, too, meet at a port that is open to the network",
    ),
    "set_torch_env_vars": PrivateName(
        "ray.train.torch.config:_set_torch_distributed_env_vars",
        "sets RANK and the like, and Accelerate's device, in a worker",
        "the workers of one node, too, meet at a port that is open to the network",
    ),
    "WorkerGroupCallback": PrivateName(
        f"{_V2}.execution.callback:WorkerGroupCallback", "reports the nodes of the workers", _STOCK
    ),
    "DefaultFailurePolicy": PrivateName(
        f"{_V2}.execution.failure_handling:DefaultFailurePolicy", "counts the restarts", _STOCK
    ),
    "FailureDecision": PrivateName(
        f"{_V2}.execution.failure_handling:FailureDecision", "RAISE for an error in code", _STOCK
    ),
    "run_controller": PrivateName(
        "ray.train.torch:TorchTrainer._initialize_and_run_controller",
        "is overridden to run our controller",
        _STOCK,
    ),
    "create_callbacks": PrivateName(
        "ray.train.torch:TorchTrainer._create_default_callbacks",
        "is overridden to leave out callbacks that a run does not need",
        _STOCK,
    ),
}
CORE: dict[str, PrivateName] = {
    "stdstream_dispatcher": PrivateName(
        "ray._private.ray_logging:global_worker_stdstream_dispatcher",
        "shows lines of workers before they are printed",
        "what workers printed last may be missing in the log",
    ),
    "_internal_kv_put": PrivateName(
        "ray.experimental.internal_kv:_internal_kv_put", "stores values of a run", "a run fails"
    ),
    "_internal_kv_get": PrivateName(
        "ray.experimental.internal_kv:_internal_kv_get", "reads values of a run", "a run fails"
    ),
    "_internal_kv_list": PrivateName(
        "ray.experimental.internal_kv:_internal_kv_list", "lists values of a run", "a run fails"
    ),
    "_internal_kv_del": PrivateName(
        "ray.experimental.internal_kv:_internal_kv_del",
        "takes back the ticket of a run that waits",
        "runs with fewer workers overtake the one that waits longest",
    ),
    "worker_module": PrivateName(
        "ray._private.worker",
        "its _global_node has the path of Ray's log folder",
        "the journal can be read over a shared folder only",
    ),
}
QUEUE: dict[str, PrivateName] = {
    "global_state": PrivateName(
        "ray._private.state:state",
        "its accessor reads the placement groups, actors and jobs of the whole cluster",
        "a run that waits for resources is shown as pending or running, without what it waits for",
    ),
    "gcs_pb2": PrivateName(
        "ray.core.generated.gcs_pb2",
        "the format of what that accessor reads",
        "a run that waits for resources is shown as pending or running, without what it waits for",
    ),
}
"""Names that a driver uses whose workers have no resources yet."""
SCRIPT: dict[str, PrivateName] = {
    "stdout_deduplicator": PrivateName(
        "ray._private.ray_logging:stdout_deduplicator",
        "its allow_re says which lines of workers are never left out",
        _FEWER_LINES,
    ),
    "stderr_deduplicator": PrivateName(
        "ray._private.ray_logging:stderr_deduplicator",
        "its allow_re says which lines of workers are never left out",
        _FEWER_LINES,
    ),
    "global_worker": PrivateName(
        "ray._private.worker:global_worker",
        "its core_worker has the metadata of the Ray job that a worker belongs to",
        "track reports nothing in the workers that a script starts itself",
    ),
    "GcsClient": PrivateName(
        "ray._raylet:GcsClient",
        "reaches Ray's key-value store without a second Ray job",
        "a stop does not reach the workers that a script starts itself; the script is ended",
    ),
    "_initialize_internal_kv": PrivateName(
        "ray.experimental.internal_kv:_initialize_internal_kv",
        "lets the functions of CORE use that client",
        "a stop does not reach the workers that a script starts itself; the script is ended",
    ),
    "RAY_JOB_CONFIG_JSON_ENV_VAR": PrivateName(
        "ray._private.runtime_env.constants:RAY_JOB_CONFIG_JSON_ENV_VAR",
        "ray.init takes the metadata of the job from the variable of this name",
        "track reports nothing in the workers that a script starts itself",
    ),
}
"""Names that a script's driver and workers use; a run of a training config needs none of them."""
LOST_WORKER = frozenset({"WorkerHealthCheckFailedError", "WorkerHealthCheckTimeoutError"})
"""Classes of ray.train.v2._internal.exceptions that Ray Train reports for a process that is gone.

Compared by name. Where Ray renames them, a lost worker is taken for an error in the code: the
stock policy decides about a restart then, or the run ends.
"""


def missing(
    names: Iterable[PrivateName] | None = None, *, load: Load = importlib.import_module
) -> list[str]:
    """Return the paths that this Ray does not have; of TRAIN by default."""
    selected = TRAIN.values() if names is None else names
    return [name.path for name in selected if not _exists(name.path, load)]


def _exists(path: str, load: Load) -> bool:
    try:
        resolve(path, load=load)
    except (ImportError, AttributeError):
        return False
    return True


def resolve(path: str, *, load: Load = importlib.import_module) -> Any:
    """Return the object at `module:attribute.attribute`. Raises ImportError or AttributeError."""
    module, _, attributes = path.partition(":")
    value = load(module)
    for attribute in attributes.split(".") if attributes else ():
        value = getattr(value, attribute)
    return value


@functools.cache
def get(name: str) -> Any:
    """Return one private object by its key in TRAIN, CORE, QUEUE or SCRIPT."""
    return resolve({**TRAIN, **CORE, **QUEUE, **SCRIPT}[name].path)


def is_lost_worker(error: object) -> bool:
    """Return whether Ray Train reports a worker process as gone."""
    return type(error).__name__ in LOST_WORKER


def global_node() -> Any:
    """Return Ray's object for this process's node; None where Ray has none."""
    try:
        return getattr(get("worker_module"), "_global_node", None)
    except ImportError:
        return None


def ray_logs() -> Path | None:
    """Return Ray's log folder on this node; its files can be read through the dashboard."""
    node = global_node()
    return Path(node.get_logs_dir_path()) if node is not None else None
