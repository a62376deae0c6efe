"""The server that the fuzz asks is that of the server's own tests."""

from tests.server.conftest import *  # noqa: F403
