"""Which worker has which rank, and what the workers need of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver.queue.room import Room
from llmops_kernel.train.script.meeting import READY_ENV_VAR


@dataclass(frozen=True)
class WorkerNode:
    """Where a worker was placed."""

    node_id: str
    host: str
    gpus: tuple[str, ...] = ()
    warm: bool = False
    reason: str = ""
    price: str = ""
    """Of the node, as it is in the environment of its processes."""


@dataclass(frozen=True)
class WorkerRank:
    """One worker's part of the process group."""

    index: int
    """The worker's position in the order of creation."""
    rank: int
    local_rank: int
    local_world_size: int
    node_rank: int
    world_size: int
    master_addr: str
    gpus: tuple[str, ...]
    """All GPUs of the node's workers, in order of local rank."""

    @property
    def is_one_node(self) -> bool:
        """Whether all workers are on this worker's node."""
        return self.local_world_size == self.world_size

    def env(self, port: int, *, run_id: str) -> dict[str, str]:
        """Return the variables that `torchrun` sets."""
        env = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str(self.node_rank),
            "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
        }
        if self.is_one_node:
            env[READY_ENV_VAR] = "True"
        if self.gpus:
            # As torchrun's workers see them: a script selects its own by LOCAL_RANK.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return env


def layout(workers: Sequence[WorkerNode]) -> list[WorkerRank]:
    """Number the workers, node after node, so that neighbours in rank share a node."""
    nodes = list(dict.fromkeys(worker.node_id for worker in workers))
    ranks: list[WorkerRank] = []
    first_host = workers[0].host
    master = "127.0.0.1" if len(nodes) == 1 else first_host
    for node_rank, node_id in enumerate(nodes):
        local = [index for index, worker in enumerate(workers) if worker.node_id == node_id]
        gpus = tuple(dict.fromkeys(gpu for index in local for gpu in workers[index].gpus))
        ranks += [
            WorkerRank(
                index=index,
                rank=len(ranks) + local_rank,
                local_rank=local_rank,
                local_world_size=len(local),
                node_rank=node_rank,
                world_size=len(workers),
                master_addr=master,
                gpus=gpus,
            )
            for local_rank, index in enumerate(local)
        ]
    return ranks


@dataclass(frozen=True)
class Needs:
    """What each worker reserves, and whether the cluster has it."""

    cpus: float
    gpus: float
    problem: str = ""
    warning: str = ""
    remedy: str = ""


def needs(config: ScriptConfig, *, room: Room, free: Mapping[str, float]) -> Needs:
    """Compare what the workers ask for with the cluster's resources and with what is free."""
    workers, wanted, total = config.workers or 1, config.resources, room.total
    gpus = (1.0 if total.get("GPU", 0) > 0 else 0.0) if wanted.gpus == "auto" else wanted.gpus
    asked = {"CPU": wanted.cpus * workers, "GPU": gpus * workers}
    short = [
        f"they request {amount:g} {name}, {room.has(name)}"
        for name, amount in asked.items()
        if amount > total.get(name, 0)
    ]
    if short:
        return Needs(
            wanted.cpus,
            gpus,
            problem=f"{workers} workers do not fit on the cluster: {'; '.join(short)}.",
            remedy=f"lower num_workers or resources, or {room.remedy}",
        )
    busy = [
        f"{free.get(name, 0):g} of {amount:g} {name} free"
        for name, amount in asked.items()
        if amount > free.get(name, 0)
    ]
    if busy:
        return Needs(
            wanted.cpus,
            gpus,
            warning=f"The workers are waiting for free resources: {', '.join(busy)}.",
            remedy="another run uses the rest; `llmops status` shows which, `llmops stop` ends it",
        )
    return Needs(wanted.cpus, gpus)
