"""A cluster provider that says what a test tells it to."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import ClusterDeadError, ClusterNotFoundError
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Connection, Progress


class FakeProvider:
    name = "local"

    def __init__(
        self,
        *,
        state: ClusterState | None = ClusterState.READY,
        message: str = "",
        connection: Connection | None = None,
    ) -> None:
        self.state = state
        self.message = message
        self.connection = connection
        self.num_asked = 0
        self.head_runs = False
        """Of a STOPPED cluster whose workers alone were suspended."""
        self.warm: dict[str, Any] = {}
        """What it reports of its fork server."""

    def up(self, template: ClusterTemplate, *, progress: Progress | None = None) -> ClusterInfo:
        raise NotImplementedError

    def get(self, name: str) -> ClusterInfo:
        self.num_asked += 1
        if self.state is None:
            raise ClusterNotFoundError(f"no {name}")
        url = self.connection.dashboard_url if self.connection else None
        return ClusterInfo(
            name=name,
            provider=self.name,
            state=self.state,
            message=self.message,
            dashboard_url=url,
            head_runs=self.head_runs,
            **self.warm,
        )

    def list(self) -> list[ClusterInfo]:
        return []

    def down(self, name: str) -> None:
        raise NotImplementedError

    def connect(self, name: str) -> Connection:
        if self.connection is None:
            raise ClusterDeadError(f"{name} is dead")
        return self.connection
