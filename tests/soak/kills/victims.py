"""Who can be killed: how each is found among the processes of the cluster."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import psutil

from tests.soak.kills.place import Place, command_line, job_of, name_of

ENTRYPOINTS = {
    "train": "llmops_kernel.train.ray.entrypoint",
    "score": "llmops_kernel.score.driver",
}
_TITLES = {
    "worker": "ray::RayTrainWorker",
    "engine": "ray::EngineActor",
    "fork server": "llmops_kernel.warm.server",
    "keeper": "llmops_kernel.warm.keeper",
}
HEAD = ("gcs", "raylet")
VICTIMS = ("driver", "worker", "engine", *HEAD, "fork server", "keeper", "client", "jupyter")


def order(kills: int, chance: random.Random, *, among: Sequence[str] = VICTIMS) -> list[str]:
    """Each once in a random order, then each again in another one."""
    found: list[str] = []
    while len(found) < kills:
        found += chance.sample(among, len(among))
    return found[:kills]


def find(victim: str, place: Place) -> list[psutil.Process]:
    """Processes of the cluster that are it, oldest first."""
    found = [process for process in place.processes() if _is(victim, process)]
    return sorted(found, key=_created)


def _is(victim: str, process: psutil.Process) -> bool:
    line = command_line(process)
    if victim == "gcs":
        return name_of(process) == "gcs_server"
    if victim == "raylet":
        return name_of(process) == "raylet"
    if victim == "driver":
        return bool(slot_of(line))  # A launcher and what it has started, or a cold driver.
    return _TITLES[victim] in line


def slot_of(line: str) -> str:
    """`train` or `score` for the command line of a driver; empty for another one."""
    return next((slot for slot, name in ENTRYPOINTS.items() if name in line), "")


def drivers(place: Place) -> dict[int, str]:
    """What Ray told each job's own process of its job, by pid: a launcher, or a cold driver."""
    return {process.pid: job for process in place.processes() if (job := job_of(process))}


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _created(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.create_time()
    return 0.0
