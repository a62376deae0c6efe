"""Messages of the live websocket: requests of a page, and data of each topic."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from llmops_kernel.server.wire.chat import ChatTurn
from llmops_kernel.server.wire.clusters import ClusterList
from llmops_kernel.server.wire.common import Body, OperationInfo, Trouble, Wire
from llmops_kernel.server.wire.runs import RunRow
from llmops_kernel.views.panel import PanelState, ProfileDetail, RunColumn


class LiveRequest(Body):
    """A request of a page."""

    op: Literal["subscribe", "unsubscribe", "ping"]
    topic: str = ""
    have: dict[str, Any] = {}
    """What the page has received on an earlier connection, so that it is not sent again."""


class OperationsNews(Wire):
    """Topic `operations`."""

    operations: list[OperationInfo]
    """Those that changed."""
    whole: bool
    """The list is complete; remove any other operation."""


class RunsNews(Wire):
    """Topic `runs`."""

    runs: list[RunRow]
    """New and changed ones."""
    removed: list[str]
    """Ids of deleted runs."""
    whole: bool
    """The list is complete; remove any other run."""
    reading: bool
    """The list is still being read: a run that is new here has not just ended."""


class RunState(Wire):
    """Topic `run/<id>`: everything except the rows of its steps."""

    panel: PanelState
    """What the notebook's panel shows."""
    row: RunRow
    note: str
    is_over: bool
    attempts: list[int]
    log_size: int | None
    """Bytes; null when the log is not on the server's disk."""


class RunRows(Wire):
    """Topic `run/<id>`: rows of steps, 32-bit floats in the payload of the same message."""

    columns: list[RunColumn]
    """What each row consists of; the first column is the x axis."""
    first: int
    """Number of the first row in the payload."""
    generation: str
    """Rows of one generation only grow; with another one all earlier rows are invalid."""
    count: int
    """Number of all rows, including those in the payload."""


class LiveError(Wire):
    """The answer to a request that could not be understood."""

    message: str
    remedy: str


class Nothing(Wire):
    """No data."""


class LivePayloads(Wire):
    """Data of a message, by its `kind`."""

    clusters: ClusterList
    operations: OperationsNews
    runs: RunsNews
    state: RunState
    rows: RunRows
    chat: ChatTurn
    trouble: Trouble
    """The topic cannot be read now; earlier data may be out of date."""
    fine: Nothing
    """The topic can be read again."""
    error: LiveError
    pong: Nothing


class LiveHeader(Wire):
    """The JSON part of every message that a page gets."""

    seq: int
    """Counts up by one with each message of a connection."""
    topic: str
    kind: str
    """A key of LivePayloads."""
    data: dict[str, Any]


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    LiveRequest,
    LivePayloads,
    LiveHeader,
    ProfileDetail,
)
