"""Opens views, and serves them: Ray's pages from this machine, only data from the cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from urllib.parse import quote

import httpx
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.utils import url_path_join
from pydantic import BaseModel, ConfigDict, Field
from tornado.web import HTTPError

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.server.base import LLMOpsHandler, protected
from llmops_kernel.server.dashboard.ray_pages import NoPagesError, RayPages, ray_pages
from llmops_kernel.server.dashboard.relay import RelayHandler
from llmops_kernel.server.dashboard.views import View

_MOST_BYTES: Final = 65536
_PAGE_POLICY: Final = (
    "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox allow-downloads"
    " allow-forms allow-modals; default-src 'none'; script-src 'self';"
    " style-src 'self' 'unsafe-inline'; font-src 'self' data:; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Without `allow-same-origin` the page has no origin, hence no cookie and no part of Jupyter."""


class ViewBody(BaseModel):
    """Asks for a view of a cluster, or for more time of the view that a page has."""

    model_config = ConfigDict(extra="forbid")

    cluster: str = Field(max_length=2_000)
    view: str = Field(default="", max_length=200)


class ViewsHandler(LLMOpsHandler):
    """Gives views to whoever is logged in; XSRF is checked by Jupyter's base class."""

    _track_activity = False  # A page that renews its view is no sign of a user.

    @protected
    async def post(self) -> None:
        body = self.body(ViewBody)
        views, user = self.manager.views, str(self.current_user.username)
        view = views.renew(body.view, cluster=body.cluster, user=user)
        if view is None:
            connection = await self.ask(self._connect, body.cluster)
            try:
                pages = await self._pages(body.cluster, connection)
            except NoPagesError as error:
                self._refer(error, connection)
                return
            view = views.open(cluster=body.cluster, user=user, pages=pages)
        self.reply({"view": view.id})

    def _connect(self, cluster: str) -> Connection:
        return self.manager.backend.provider_for(cluster).connect(cluster)

    async def _pages(self, cluster: str, connection: Connection) -> RayPages:
        try:
            async with asyncio.timeout(15), self.manager.dashboards.client(connection) as client:
                version = await _ray_version(client)
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise ClusterUnreachableError(
                f"The Ray Dashboard of cluster {cluster!r} does not answer"
                f" ({str(error) or type(error).__name__})",
                remedy="`llmops status` shows the cluster's state",
            ) from error
        return await self.run(ray_pages, cluster, version)

    def _refer(self, error: NoPagesError, connection: Connection) -> None:
        """Say why, and where the cluster itself shows its dashboard."""
        url = connection.dashboard_url if connection.route is None else ""
        self.reply({"message": error.message, "remedy": error.remedy, "url": url}, status=409)


class PageHandler(RelayHandler):
    """Serves what a view may read. A request has no login: the view's id is its permission."""

    _view: View | None = None

    def set_default_headers(self) -> None:
        super().set_default_headers()
        # Called again for an error, whose status the page may read, too.
        if self._view is not None:
            # The page has no origin, which browsers call "null".
            self.set_header("Access-Control-Allow-Origin", "null")

    def set_cors_headers(self) -> None:
        """Leave out what Jupyter allows to other sites."""

    @allow_unauthenticated
    async def get(self, view_id: str, path: str) -> None:
        view = self._view = self.manager.views.find(view_id)
        self.set_default_headers()
        if view is None:
            await self._expired()
        elif view.pages.owns(path):
            await self._send_file(view, path)
        else:
            root = url_path_join(self.base_url, "llmops/dashboard-views/")
            name = self.request.path.removeprefix(root).partition("/")[0]
            self.start_relay(view.cluster, prefix=f"{root}{name}/")
            await self.until_relayed()

    head = get

    @protected
    async def _expired(self) -> None:
        """Raise 404, behind the login: strangers do not learn that there is no such view."""
        raise HTTPError(404, "This view of a Ray Dashboard has ended; reload the page")

    async def _send_file(self, view: View, path: str) -> None:
        if not path and self.request.headers.get("Sec-Fetch-Dest") == "document":
            # A tab of its own: Jupyter's page around this one renews the view.
            self.redirect(f"../../dashboard/{quote(view.cluster, safe='')}/")
            return
        loop = asyncio.get_running_loop()
        # Not `executor`: the page of one cluster must not wait for another that hangs.
        file = await loop.run_in_executor(self.manager.own_threads, view.pages.read, path)
        if file is None:
            raise HTTPError(404)
        self.set_header("Content-Security-Policy", _PAGE_POLICY)
        self.set_header("Content-Type", file.content_type)
        self.set_header("Cache-Control", "private, max-age=3600" if path else "no-store")
        if file.is_gzipped:
            self.set_header("Content-Encoding", "gzip")
        await self.finish(file.content)

    def _log(self) -> None:
        # Without the path: a view's id must not be kept in a log.
        self.log.debug("%s %s of a view", self.get_status(), self.request.method)

    def log_exception(self, *exc_info: Any) -> None:
        if not isinstance(exc_info[1], HTTPError):
            super().log_exception(*exc_info)


async def _ray_version(client: httpx.AsyncClient) -> str:
    """Return what the cluster says its Ray is; empty for an answer that says nothing."""
    content = b""
    async with client.stream("GET", "/api/version") as answer:
        async for chunk in answer.aiter_bytes():
            content += chunk
            if len(content) > _MOST_BYTES:
                return ""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    version = body.get("ray_version") if isinstance(body, dict) else None
    return version if isinstance(version, str) else ""


ROUTES = [
    (r"dashboard-views", ViewsHandler),
    (r"dashboard-views/([^/]+)/(.*)", PageHandler),
]
