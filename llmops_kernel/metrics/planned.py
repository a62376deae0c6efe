"""What a run was planned to reach and what it has reached, as the journal keeps both."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class MeasuredRun(BaseModel):
    """What a run has reached, beside what was planned for it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    steps: int
    """Undisturbed ones, that the medians are of: not the first of a worker group."""
    step_time_s: float
    """Median, waiting for rows included."""
    tokens_per_second: float
    """Median of all workers together, by the time of a step without waiting for rows."""
    peak_memory_bytes: int | None = None
    """Of one device, as the allocator reports; None on CPUs, where a process shares its memory with
    what it was forked from."""


class PlannedRun(BaseModel):
    """What the planner expects of a run without having learned from others, and what it reached."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    family: str
    """`model_type` of the model's config."""
    attention: str
    device: str
    """Accelerator, or processor and the threads of a worker; with the format of its products."""
    strategy: str
    method: str
    tokens: float
    """Of one step of all workers, padding not counted."""
    work: dict[str, float]
    """What one worker does in one step: fields of `planner.speed.Work`."""
    memory: dict[str, float]
    """Bytes on one device by what they are for: fields of `planner.memory.Memory`."""
    host_bytes: float = 0.0
    step_time_s: float | None = None
    """None where the peak of the device is not known."""
    communication_s: float | None = None
    """Of these, that do not fit behind the computation."""
    measured: MeasuredRun | None = None
    """None until the training has ended, and where no step was undisturbed."""
