"""Collectives over a run's workers that also work with one worker and no process group."""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def is_group() -> bool:
    """Return whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()


def barrier() -> None:
    """Wait until all ranks are here."""
    if is_group():
        dist.barrier()


def gather(value: T) -> list[T]:
    """Return each rank's value, in rank order, on every rank."""
    if not is_group():
        return [value]
    values: list[T] = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def from_main(value: T) -> T:
    """Return rank 0's value on every rank."""
    return gather(value)[0]
