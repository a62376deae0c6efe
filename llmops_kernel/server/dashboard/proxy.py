"""The Ray Dashboard of a cluster, below Jupyter's own address and login."""

from __future__ import annotations

import asyncio
import secrets
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import ensure_async, url_path_join
from tornado.web import HTTPError, stream_request_body

from llmops_kernel.server.base import AUTH_RESOURCE, protected
from llmops_kernel.server.dashboard.proxy_rules import SAFE_METHODS, ProxyRefusal
from llmops_kernel.server.dashboard.relay import RelayHandler


@stream_request_body
class DashboardHandler(RelayHandler):
    """The page that shows the dashboard, and below it what the cluster answers, as data."""

    async def prepare(self, **kwargs: Any) -> None:
        await super().prepare(**kwargs)
        if self._finished or self.request.method in SAFE_METHODS:
            return
        # A body arrives before its method is called, so the sender is checked here.
        await self._refuse_strangers()
        if not self.manager.dashboard_writable:
            raise ProxyRefusal(
                f"The embedded Ray Dashboard is read-only, so {self.request.method} is refused",
                remedy="set c.LLMOpsApp.dashboard_writable = True in the Jupyter configuration",
                status=405,
            )
        self._start()

    async def _refuse_strangers(self) -> None:
        user = self.current_user
        if not user:
            raise HTTPError(403)
        if not await ensure_async(
            self.authorizer.is_authorized(self, user, "write", self.auth_resource)
        ):
            raise HTTPError(403)

    async def data_received(self, chunk: bytes) -> None:
        relay = self._relay
        if relay is None:
            return
        # Waiting here is what holds a sender back that is faster than Ray.
        putting = asyncio.ensure_future(self._body.put(chunk))
        await asyncio.wait({putting, relay}, return_when=asyncio.FIRST_COMPLETED)
        putting.cancel()

    @protected
    async def get(self, cluster: str, path: str) -> None:
        if not path:
            self._show(cluster)
            return
        self._start()
        await self.until_relayed()

    head = get

    @protected
    async def post(self, cluster: str, path: str) -> None:
        await self._end_of_body()
        await self.until_relayed()

    put = patch = delete = post

    def _show(self, cluster: str) -> None:
        nonce = new_nonce()
        self.set_header("Content-Security-Policy", policy(nonce))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        xsrf = self.xsrf_token.decode()
        self.finish(page(cluster, xsrf=xsrf, nonce=nonce))

    async def _end_of_body(self) -> None:
        assert self._relay is not None
        end = asyncio.ensure_future(self._body.put(None))
        await asyncio.wait({end, self._relay}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()

    def _start(self) -> None:
        root = url_path_join(self.base_url, "llmops/dashboard/")
        # As it came: the encoded slashes of a name such as `context/namespace/lab` stay encoded.
        name = self.request.path.removeprefix(root).partition("/")[0]
        self.start_relay(self.path_args[0], prefix=f"{root}{name}/")


class SlashHandler(JupyterHandler):
    """Add the final slash: the dashboard's links are relative to it."""

    auth_resource = AUTH_RESOURCE

    @protected
    async def get(self, cluster: str) -> None:
        query = f"?{self.request.query}" if self.request.query else ""
        self.redirect(f"{self.request.path}/{query}")

    head = get


ROUTES = [
    (r"dashboard/([^/]+)", SlashHandler),
    (r"dashboard/([^/]+)/(.*)", DashboardHandler),
]


# --- Jupyter's page around a Ray Dashboard: it holds the login, and the frame in it does not ---


_STATIC = Path(__file__).parent / "static"


def new_nonce() -> str:
    return secrets.token_urlsafe(16)


def policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}';"
        " connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'self'"
    )


def page(cluster: str, *, xsrf: str, nonce: str) -> str:
    """Return the page. `xsrf` goes along with its requests for a view."""
    values = {"CLUSTER": cluster, "XSRF": xsrf, "NONCE": nonce}
    text = _template()
    for name, value in values.items():
        text = text.replace(f"@{name}@", escape(value))
    return text.replace("@SCRIPT@", _script())


@cache
def _template() -> str:
    return (_STATIC / "shell.html").read_text(encoding="utf-8")


@cache
def _script() -> str:
    return (_STATIC / "shell.js").read_text(encoding="utf-8")
