"""What a profile of steps says in the journal: the operators that took most time, and the calls."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

PHASE: Final = "profile"
"""From the first step that is profiled until its files are written."""
REQUEST_PHASE: Final = "profile_request"
"""From a request, which a client journals, until the workers have taken it."""


class _Measured(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    calls: int
    self_cpu_s: float
    """Seconds on the processor, without those of what it calls."""
    self_device_s: float | None = None
    """Seconds of its kernels on the GPU; None on CPUs."""


class OperatorTime(_Measured):
    """An operator of PyTorch, or a kernel, in the steps that were profiled, of rank 0."""


class CallTime(_Measured):
    """Calls of one name from one caller: a node of the tree of calls of rank 0.

    A name is that of a module, of an operator, or of a thread of the process at the top.
    """

    caller: int | None = None
    """Place of its caller in the list, which is before it; None for a thread."""
    cpu_s: float
    """Seconds on the processor with those of what it calls, also of calls that are left out."""
    device_s: float | None = None
