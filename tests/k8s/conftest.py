"""A stand-in for each file of tests, and a fresh namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.k8s.standin import MISSING_CRD, RAYCLUSTER_CRD, StandIn

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def standin() -> Iterator[StandIn]:
    if not RAYCLUSTER_CRD.exists():
        pytest.skip(MISSING_CRD)
    with StandIn() as started:
        yield started


@pytest.fixture
def namespace(standin: StandIn) -> Iterator[str]:
    name = standin.create_namespace(f"test-{next(_numbers)}")
    yield name
    standin.heal()
    standin.delete_namespace(name)
