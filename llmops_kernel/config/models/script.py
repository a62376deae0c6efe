"""The script config: a training script of the user's, kept as a file (`*.script.yaml`)."""

from __future__ import annotations

import re
import shlex
from typing import Any, Literal

from pydantic import Field, field_validator

from llmops_kernel.config.models.section import (
    NAME_PATTERN,
    Broken,
    MonitorConfig,
    Packages,
    RunConfig,
    Section,
)
from llmops_kernel.config.models.sections import ProfileConfig
from llmops_kernel.config.models.tracking import ReportTo, TrackingConfig, tracker_rules

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY", re.I)


class WorkerResources(Section):
    """What each worker reserves on the cluster."""

    cpus: float = Field(default=1.0, gt=0)
    """CPUs of one worker."""
    gpus: Literal["auto"] | float = "auto"
    """GPUs of one worker; `auto` is 1 where the cluster has GPUs, else 0."""


class ScriptConfig(RunConfig):
    """A Python script that runs on the cluster, alone or on several workers."""

    name: str = Field(default="script", pattern=NAME_PATTERN)
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""
    script: str = Field(min_length=1)
    """The Python file, relative to the workspace."""
    args: tuple[str, ...] = ()
    """Arguments of the script: a list, or one text that is split as a shell splits it."""
    mode: Literal["auto", "driver", "workers"] = "auto"
    """`driver` runs it once, as `python` would: also for scripts that use Ray themselves. `workers`
    starts it on `num_workers` workers, as `torchrun` would. `auto`: `workers` if `num_workers` is
    given."""
    num_workers: int | None = Field(default=None, ge=1)
    """Workers to start the script on; RANK, WORLD_SIZE, MASTER_ADDR and the like are set."""
    resources: WorkerResources = WorkerResources()
    """What each worker reserves; only with `num_workers`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the script. They are kept in the run's record: no secrets here."""
    packages: Packages = ()
    """Packages that this run needs besides those of the cluster, as pip takes them: `trl==1.16`.
    Each node installs them once."""
    requirements: str | None = None
    """A requirements file with such packages, relative to the workspace."""
    report_to: ReportTo = ()
    """Trackers that get the run's numbers: `comet_ml`, `mlflow`, `tensorboard`, `trackio`,
    `wandb`; several at once."""
    tracking: TrackingConfig = TrackingConfig()
    """How the run appears in these trackers."""
    profile: ProfileConfig = ProfileConfig()
    """Steps of `track.step` that are profiled."""
    monitor: MonitorConfig = MonitorConfig()
    """What is measured and watched while the run is under way."""

    @field_validator("args", mode="before")
    @classmethod
    def _split_command_line(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"cannot be split into arguments: {error}".lower()) from None

    @property
    def workers(self) -> int | None:
        """The number of workers to start; None for a script that is its own driver."""
        if self.mode == "driver":
            return None
        return self.num_workers or (1 if self.mode == "workers" else None)

    @property
    def worker_processes(self) -> int:
        return self.workers or 0

    def broken_rules(self) -> list[Broken]:
        broken = list(tracker_rules(self.report_to))
        if self.mode == "driver" and self.num_workers is not None:
            broken.append(
                Broken(
                    path="num_workers",
                    message=f"mode driver runs the script once, not on {self.num_workers} workers",
                    suggestion="leave out num_workers or mode",
                    uses=("mode",),
                )
            )
        if self.workers is None and self.resources != WorkerResources():
            broken.append(
                Broken(
                    path="resources",
                    message="these are resources of a worker, and the script has no workers",
                    suggestion="set num_workers, or leave out resources",
                    uses=("num_workers", "mode"),
                )
            )
        broken += [
            Broken(
                path="env",
                message=f"{name} looks like a secret, and this file is kept in the run's record",
                suggestion="set it in the cluster template's secrets",
            )
            for name in self.env
            if _SECRET.search(name)
        ]
        return broken
