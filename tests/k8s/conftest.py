"""One stand-in for each file of tests and a new namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests.k8s.standin.process import StandIn

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def standin() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


@pytest.fixture
def http(standin: StandIn) -> Iterator[httpx.Client]:
    """An administrator."""
    with standin.client() as client:
        yield client


@pytest.fixture
def namespace(standin: StandIn) -> Iterator[str]:
    name = standin.create_namespace(f"test-{next(_numbers)}")
    yield name
    standin.heal()
    standin.delete_namespace(name)
