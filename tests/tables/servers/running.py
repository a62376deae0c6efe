"""Fixtures of the servers: each test that asks for `store` runs with every one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tables.servers import start

SERVERS = {"s3": start.s3, "gcs": start.gcs, "azure": start.azure}


@pytest.fixture(scope="session", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[start.Store]:
    """A server with an empty bucket."""
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def store(server: start.Store, monkeypatch: pytest.MonkeyPatch) -> start.Store:
    """The server, which the environment names as a user's or a template's does."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return server
