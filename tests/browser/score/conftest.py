"""One Lab and one real cluster for all tests of scoring, without vLLM's environment: on a CPU its
engine takes a minute to load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel import score_env
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from tests.browser.lab import Lab
from tests.browser.run_page import real_lab


@pytest.fixture(scope="package")
def team(chromium: Any) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch, real_lab() as lab:
        patch.setenv(score_env.ENV_VAR, str(lab.home / "no-vllm"))
        LocalProvider(lab.home).up(ClusterTemplate(name="team", num_cpus=4))
        lab.wait()
        yield lab
