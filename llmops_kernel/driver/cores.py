"""The number of a node's cores that a process of ours computes with."""

from __future__ import annotations

import os
import sys

from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.warm.refresh import set_threads


def use_cores(num_processes: int) -> int:
    """Divide the node's cores among that many processes; return the threads of this one.

    Ray gives an actor that asks for no CPU one thread (it sets OMP_NUM_THREADS to 1). Libraries
    read the variable when they are imported; torch is set again when it is loaded already.
    """
    threads = cores_each(num_processes)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return threads


def threads_set_by_user() -> bool:
    """Return whether OMP_NUM_THREADS has a value that Ray would not have set by default."""
    return os.environ.get("OMP_NUM_THREADS", "1") != "1"


def use_all_cores() -> None:
    """Compute with all cores of the node, as a program that a shell starts.

    The driver of a job inherits the one thread that Ray gives to the actor that starts it. A
    value that the user has set stays.
    """
    if threads_set_by_user():
        return
    os.environ.pop("OMP_NUM_THREADS", None)
    set_threads(str(cores_each(1)))
