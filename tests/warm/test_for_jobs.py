"""What a node keeps, from the template to a worker's environment."""

from __future__ import annotations

import pytest

from llmops_kernel.config.models.section import WarmSettings
from llmops_kernel.services.submission import cold_start
from llmops_kernel.warm.for_jobs import KEEP_ENV_VAR, keep_environment, model_cache_bytes
from llmops_kernel.warm.launcher import DIR_ENV_VAR


@pytest.fixture(autouse=True)
def _node(monkeypatch):
    monkeypatch.setenv(DIR_ENV_VAR, "/warm")
    monkeypatch.delenv(KEEP_ENV_VAR, raising=False)


@pytest.mark.parametrize(
    ("keep", "num_bytes"), [("8GiB", 2**33), ("2 GB", 2 * 10**9), (0, 0), (1000, 1000)]
)
def test_a_worker_finds_what_the_template_says(monkeypatch, keep, num_bytes):
    for name, value in keep_environment(WarmSettings(keep=keep)).items():
        monkeypatch.setenv(name, value)
    assert model_cache_bytes() == num_bytes


def test_the_default_adds_nothing_to_the_environment_of_nodes():
    assert keep_environment(WarmSettings()) == {}


def test_a_run_that_starts_cold_maps_nothing(monkeypatch):
    for name, value in cold_start("a benchmark").items():
        monkeypatch.setenv(name, value)
    assert model_cache_bytes() == 0


def test_without_a_fork_server_nothing_is_kept(monkeypatch):
    monkeypatch.delenv(DIR_ENV_VAR)
    assert model_cache_bytes() == 0


def test_a_value_that_is_no_number_is_the_default(monkeypatch):
    monkeypatch.setenv(KEEP_ENV_VAR, "much")
    assert model_cache_bytes() == 2**33
