"""All workers of a run together, also where there is only one and no process group."""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def is_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def barrier() -> None:
    if is_group():
        dist.barrier()


def gather(value: T) -> list[T]:
    """What each rank said, by rank, on every rank."""
    if not is_group():
        return [value]
    told: list[T] = [value] * dist.get_world_size()
    dist.all_gather_object(told, value)
    return told


def from_main(value: T) -> T:
    """What rank 0 said, on every rank."""
    return gather(value)[0]
