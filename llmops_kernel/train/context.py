"""The context of a worker: its rank, where it writes, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from llmops_kernel.metrics.events import Event, PhaseEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmops_kernel.driver.beats import BeatWriter
    from llmops_kernel.driver.storage import Bucket
    from llmops_kernel.store.journal.journal import JournalWriter

E = TypeVar("E", bound=Event)


class StopRequestedError(Exception):
    """The user stopped the run before its first step."""


@dataclass(kw_only=True)
class WorkerContext:
    """The environment of the worker loop.

    Under Ray Train `ray/context.py` makes one; a test or a plain process makes its own. So the same
    loop runs under Ray, under pytest and alone on one GPU.
    """

    run_id: str
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    use_gpu: bool = False
    folder: Path
    """Folder for checkpoints and outputs; shared by all workers, unless there is a bucket."""
    bucket: Bucket | None = None
    """Bucket for checkpoints and outputs when `folder` is only on this node."""
    visible: Path | None = None
    """Folder of the journal in the dashboard, if the client does not see `folder`: for small
    outputs."""
    is_kept: bool = False
    """`folder` outlives the node: it is on storage of the cluster."""
    workspace: Path
    """Folder that relative paths of the config start from."""
    fallback_workspaces: tuple[Path, ...] = ()
    """Tried when a relative path is not below `workspace`."""
    cache: Path | None = None
    """Converted models and measured peaks; default the user's cache."""
    journal: JournalWriter | None = None
    """Set on rank 0 only."""
    say: Callable[[Event], object] = field(default=lambda _: None)
    """Called on rank 0 with each event, for a line in the log; must be cheap."""
    user: str = ""
    """The user who submitted the run."""
    keep_bytes: int = 0
    """Bytes of loaded models that this node keeps in `cache` for later runs; 0: none."""
    node_id: str = ""
    host: str = ""
    resume: bool = True
    """Resume from the newest complete checkpoint in `folder`, if there is one."""
    step: int = 0
    """Step that is computed, counted from 1; 0 before the first one."""
    in_phase: str = ""
    """Phase that has begun and not ended; empty between phases."""
    beat: BeatWriter | None = None
    """Says on this node how far this process is; None: nobody looks."""
    rest: str = ""
    """Phase of the beat between phases of the journal: `save`, or `end` after the last step."""
    begun: Callable[[], object] = field(default=lambda: None)
    """Called on rank 0 once its first step has ended."""
    profile_requested: Callable[[], int] = field(default=lambda: 0)
    """Returns on rank 0, once for each request, how many steps are to be profiled; 0: none."""
    stop_requested: Callable[[], bool] = field(default=lambda: False)
    """Called on rank 0 only, between start-up phases and once a step; must be cheap."""

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def roots(self) -> tuple[Path, ...]:
        """Return the folders in which relative paths of the config are looked for, in order."""
        return (self.workspace, *self.fallback_workspaces)

    def emit(self, event: Event) -> None:
        """Note in which phase this worker is, and on rank 0 write the event to the journal."""
        if isinstance(event, PhaseEvent):
            self.in_phase = event.name if event.state == "begin" else ""
            self.tell_phase()
        if self.journal is not None:
            self.journal.emit(event)
            self.say(event)

    def tell_phase(self) -> None:
        """Say on this node in which phase this worker is."""
        if self.beat is not None:
            self.beat.phase(self.in_phase or self.rest)

    @contextmanager
    def phase(self, name: str, detail: str = "") -> Iterator[list[str]]:
        """Write begin and end of a phase; an exception leaves the phase open.

        Yields a list: what the body adds to it is the detail of the end.
        """
        self.emit(PhaseEvent(name=name, state="begin", detail=detail))
        details: list[str] = []
        yield details
        detail = "; ".join(filter(None, details)) or detail
        self.emit(PhaseEvent(name=name, state="end", detail=detail))
