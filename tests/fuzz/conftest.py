"""The server that the fuzz asks is that of the server's own tests; how much ran is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fuzz.examples import PROPERTY, taken
from tests.server.conftest import *  # noqa: F403


@pytest.fixture(autouse=True)
def _report_how_much_ran(record_property: Callable[[str, object], None]) -> Iterator[None]:
    yield
    for ran in taken():
        record_property(PROPERTY, ran)
