"""Table of the extension's routes, all below `<base url>/llmops/`."""

from __future__ import annotations

from typing import Any

from llmops_kernel.server import handshake
from llmops_kernel.server.base import NotFoundHandler
from llmops_kernel.server.chat import routes as chat_routes
from llmops_kernel.server.clusters import work as cluster_routes
from llmops_kernel.server.configs import data as data_routes
from llmops_kernel.server.configs import routes as config_routes
from llmops_kernel.server.dashboard import proxy, view_routes
from llmops_kernel.server.live import websocket as live
from llmops_kernel.server.run_table import routes as run_table_routes
from llmops_kernel.server.runs import log_routes, scored_rows
from llmops_kernel.server.runs import routes as run_routes

PREFIX = "/llmops/"


def all_routes() -> list[tuple[str, Any]]:
    """Return (regular expression of the path, handler); Jupyter puts its base URL before them."""
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
