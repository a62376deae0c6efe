"""A real Jupyter server with our extension, below a base URL, for each test.

pytest-jupyter's fixtures are imported instead of loaded as a plugin: its event loop would reach
the browser tests, whose Playwright needs a thread without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pytest_jupyter.jupyter_core import *  # noqa: F403
from pytest_jupyter.jupyter_server import *  # noqa: F403
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from traitlets.config import Config

from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterProvider
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore

Fetch = Callable[..., Awaitable[HTTPResponse]]
ProviderTypes = list[Callable[[], ClusterProvider]]


@pytest.fixture
def jp_base_url() -> str:
    return "/user/someone/"


@pytest.fixture
def provider_types() -> ProviderTypes:
    """What makes the server's providers; a test may put its own ones in their place."""
    return [LocalProvider, KubeRayProvider]


@pytest.fixture
def store_type() -> list[type[RunStore]]:
    """One element: the type of the server's run store."""
    return [RunStore]


@pytest.fixture
def jp_server_config(provider_types: ProviderTypes, store_type: list[type[RunStore]]) -> Config:
    def backend() -> Backend:
        return Backend(store=store_type[0](), providers=lambda: [make() for make in provider_types])

    return Config(
        {
            "LLMOpsApp": {"backend_factory": backend},
            "ServerApp": {
                "jpserver_extensions": {"llmops_kernel.server": True},
                "allow_unauthenticated_access": False,
            },
        }
    )


@pytest.fixture
def writable(jp_server_config: Config) -> None:
    """Let the proxy pass on requests that change something."""
    jp_server_config["LLMOpsApp"]["dashboard_writable"] = True


@pytest.fixture
def raw(jp_serverapp: Any, http_server: Any, jp_http_port: int, jp_base_url: str) -> Fetch:
    """A request without the token unless it is given; an answer of any status is returned."""

    async def fetch(path: str, **kwargs: Any) -> HTTPResponse:
        url = f"http://127.0.0.1:{jp_http_port}{path if path[0] == '/' else jp_base_url + path}"
        kwargs.setdefault("follow_redirects", False)
        if kwargs.get("method") in {"POST", "PUT", "PATCH"}:
            kwargs.setdefault("body", "{}")
        request = HTTPRequest(url, allow_nonstandard_methods=True, **kwargs)
        return await AsyncHTTPClient(force_instance=True).fetch(request, raise_error=False)

    return fetch


@pytest.fixture
def api(raw: Fetch, jp_auth_header: dict[str, str]) -> Fetch:
    """A request below `llmops/` with the server's token."""

    async def fetch(path: str, **kwargs: Any) -> HTTPResponse:
        kwargs["headers"] = {**jp_auth_header, **kwargs.get("headers", {})}
        return await raw(f"llmops/{path}", **kwargs)

    return fetch
