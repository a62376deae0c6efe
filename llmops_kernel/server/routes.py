"""Every route of the extension in one table, all below `<base url>/llmops/`."""

from __future__ import annotations

from typing import Any

from llmops_kernel.server.base import LLMOpsHandler, NotFoundHandler, RequestError, protected
from llmops_kernel.server.chat import routes as chat_routes
from llmops_kernel.server.clusters import work as cluster_routes
from llmops_kernel.server.configs import data as data_routes
from llmops_kernel.server.configs import routes as config_routes
from llmops_kernel.server.dashboard import proxy, view_routes
from llmops_kernel.server.live import websocket as live
from llmops_kernel.server.run_table import routes as run_table_routes
from llmops_kernel.server.runs import log_routes, scored_rows
from llmops_kernel.server.runs import routes as run_routes
from llmops_kernel.server.wire.common import PROTOCOL, Handshake
from llmops_kernel.store.paths import home
from llmops_kernel.version import VERSION

PREFIX = "/llmops/"


def all_routes() -> list[tuple[str, Any]]:
    """(regular expression of the path, handler); Jupyter puts its base URL before them."""
    tables = (
        handshake,
        live,
        cluster_routes,
        run_routes,
        run_table_routes,
        chat_routes,
        log_routes,
        scored_rows,
        config_routes,
        data_routes,
        proxy,
        view_routes,
    )
    routes = [(PREFIX + path, handler) for module in tables for path, handler in module.ROUTES]
    return [*routes, (PREFIX + ".*", NotFoundHandler)]


# --- The first request of a page, and the operations that run ---


class HandshakeHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(
            Handshake(
                version=VERSION,
                protocol=PROTOCOL,
                home=str(home()),
                root=str(self.manager.root_dir),
                dashboard_writable=self.manager.dashboard_writable,
            )
        )


class OperationsHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(self.manager.operations.list())


class OperationHandler(LLMOpsHandler):
    @protected
    async def get(self, operation_id: str) -> None:
        info = self.manager.operations.get(operation_id)
        if info is None:
            raise RequestError(
                f"There is no operation {operation_id!r}",
                remedy="the Jupyter server may have been restarted; check the clusters and runs",
                status=404,
            )
        self.reply(info)


ROUTES = [
    (r"handshake", HandshakeHandler),
    (r"operations", OperationsHandler),
    (r"operations/([0-9a-f]+)", OperationHandler),
]
