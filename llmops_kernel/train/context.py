"""What the worker loop learns of the world: who it is, where it writes, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from llmops_kernel.metrics.events import Event, PhaseEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmops_kernel.runs.journal import JournalWriter
    from llmops_kernel.train.storage import Bucket

E = TypeVar("E", bound=Event)


class StopRequestedError(Exception):
    """The user stopped the run before its first step."""


@dataclass(kw_only=True)
class WorkerContext:
    """Ray Train supplies one (`ray_context.py`); a test or a plain process makes its own.

    So the same loop runs under Ray, under pytest and alone on one GPU.
    """

    run_id: str
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    use_gpu: bool = False
    folder: Path
    """Checkpoints and outputs go below it; shared by all workers, unless there is a bucket."""
    bucket: Bucket | None = None
    """Where they are kept when `folder` is this node's own."""
    workspace: Path
    """Where relative paths of the config start."""
    fallback_workspaces: tuple[Path, ...] = ()
    """Tried when a relative path is not below `workspace`."""
    cache: Path | None = None
    """Converted models and measured peaks; default the user's cache."""
    journal: JournalWriter | None = None
    """Only rank 0 has one."""
    node_id: str = ""
    host: str = ""
    resume: bool = True
    """Go on from the newest complete checkpoint in `folder`, if any."""
    stop_requested: Callable[[], bool] = field(default=lambda: False)
    """Asked on rank 0 only, between start-up phases and once a step; must be cheap."""

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def emit(self, event: Event) -> None:
        """Journal the event on rank 0; do nothing elsewhere."""
        if self.journal is not None:
            self.journal.emit(event)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[None]:
        """Journal begin and end; an exception leaves the phase open, as it was."""
        self.emit(PhaseEvent(name=name, state="begin", detail=detail))
        yield
        self.emit(PhaseEvent(name=name, state="end", detail=detail))
