"""The Jupyter server extension: settings, routes, start and stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Bool, Callable, List, Unicode

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.server import (
    chat_routes,
    cluster_routes,
    config_routes,
    data_routes,
    handshake,
    run_table_routes,
)
from llmops_kernel.server import websocket as live
from llmops_kernel.server.base import NotFoundHandler
from llmops_kernel.server.cluster_routes import read_template, start_up
from llmops_kernel.server.dashboard import proxy, view_routes
from llmops_kernel.server.manager import MANAGER_KEY, Manager
from llmops_kernel.server.runs import log_routes, scored_rows
from llmops_kernel.server.runs import routes as run_routes
from llmops_kernel.server.wire.clusters import UpBody
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.services.backend import Backend
from llmops_kernel.version import VERSION

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


def bring_up(manager: Manager, name: str) -> OperationInfo:
    """Start a cluster by its template's name or path. Raises ConfigError, RequestError."""
    is_path = name.endswith((".yaml", ".yml"))
    body = UpBody(path=name) if is_path else UpBody(template=name)
    template, path = read_template(body, manager.root_dir)
    return start_up(manager.operations, manager.backend, template, path)


class LLMOpsApp(ExtensionApp):
    """Configured like any Jupyter application: `c.LLMOpsApp.dashboard_writable = True`."""

    name = "llmops"
    description = "Ray clusters and training runs in JupyterLab."
    load_other_extensions = True
    version = VERSION

    dashboard_writable = Bool(
        False,
        help="Let the embedded Ray Dashboard change things (it then passes on POST, PUT, DELETE).",
    ).tag(config=True)
    initial_clusters = List(
        Unicode(),
        help="Cluster templates (names, or files below the root) to start with the server.",
    ).tag(config=True)

    backend_factory = Callable(
        Backend,
        help="Called once without arguments; returns the run store and the cluster providers.",
    ).tag(config=True)

    def initialize_settings(self) -> None:
        assert self.serverapp is not None  # Jupyter links it before it asks for settings.
        root = Path(self.serverapp.root_dir).expanduser()
        self.settings[MANAGER_KEY] = Manager(
            root_dir=root,
            dashboard_writable=self.dashboard_writable,
            backend=self.backend_factory(),
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(all_routes())

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        await super()._start_jupyter_server_extension(serverapp)
        for name in self.initial_clusters:
            try:
                bring_up(self.settings[MANAGER_KEY], name)
            except LLMOpsError as error:
                # A mistake in one template must not keep the Jupyter server from starting.
                self.log.error("llmops: cluster %s was not started: %s", name, error)

    async def stop_extension(self) -> None:
        await self.settings[MANAGER_KEY].close()
