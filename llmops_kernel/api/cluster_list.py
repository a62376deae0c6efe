"""Several clusters at once: a list that prints one line a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.api.cluster_handle import Cluster, describe, describe_html
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.backend import Backend


class ClusterList(list[Cluster]):
    """Prints one line a cluster."""

    def __init__(
        self, backend: Backend, clusters: Iterable[Cluster], *, errors: Iterable[LLMOpsError] = ()
    ) -> None:
        super().__init__(clusters)
        self._backend = backend
        self.errors = tuple(errors)
        """Errors of contexts and providers whose clusters could not be listed."""

    def __repr__(self) -> str:
        return "\n".join(map(describe, self._infos())) or "no cluster; llmops.up()"

    def _repr_html_(self) -> str:
        lines = map(describe_html, self._infos())
        return "<br>".join(lines) or "no cluster; <code>llmops.up()</code>"

    def _infos(self) -> list[ClusterInfo]:
        """Query all in parallel: one by one, two hundred clusters would take minutes."""
        now = {info.name: info for info in self._backend.survey().infos}
        return [now[cluster.name] for cluster in self if cluster.name in now]
