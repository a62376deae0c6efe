"""One right is missing at a time: what users read, at once, with the rule that grants it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
ROLE = Path(__file__).parents[4] / "cluster_templates" / "rbac.yaml"


def role_without(verb: str, resource: str) -> list[PolicyRule]:
    """Return the committed Role, less one verb on one resource."""
    role = next(iter(yaml.safe_load_all(ROLE.read_text())))
    found = []
    for rule in role["rules"]:
        for one in rule["resources"]:
            verbs = tuple(each for each in rule["verbs"] if (each, one) != (verb, resource))
            found.append(PolicyRule(tuple(rule["apiGroups"]), (one,), verbs))
    return found


def as_user_without(cloud: Cloud, verb: str, resource: str) -> KubeRayProvider:
    """Return the provider of a user who lacks that right, beside a cluster that runs."""
    cloud.provider.up(cloud.template())
    name = re.sub(r"\W", "-", f"no-{verb}-{resource}")
    cloud.standin.user(name, f"{name}-token", role_without(verb, resource), cloud.namespace)
    cloud.login(f"{name}-token")
    close_caches()
    close_routes()
    return KubeRayProvider(cloud.home)


def submit(jobs: JobsClient) -> None:
    jobs.submit(entrypoint="true", submission_id="x-1", runtime_env={}, metadata={})


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("create", lambda jobs: jobs.stop("some-job")),
        ("create", lambda jobs: submit(jobs)),
        ("update", lambda jobs: jobs.upload_package(ROLE, name="_ray_pkg_a.zip")),
        ("delete", lambda jobs: jobs.delete("some-job")),
    ],
)
def test_a_call_of_ray_names_the_verb_that_is_missing(cloud: Cloud, verb: str, call: Any) -> None:
    provider = as_user_without(cloud, verb, "services/proxy")
    with (
        JobsClient(provider.connect("one"), cluster="one") as jobs,
        pytest.raises(LLMOpsError, match=f"not allowed to {verb} services/proxy") as caught,
    ):
        call(jobs)
    assert "rule 8 of" in caught.value.remedy
    assert "llmops up" not in caught.value.remedy


def test_a_token_that_expires_in_a_long_running_process(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    cloud.standin.user("gil", "gil-token", [PolicyRule(("*",), ("*",), ("*",))])
    cloud.login("gil-token")
    close_routes()
    provider = KubeRayProvider(cloud.home)
    until(lambda: provider.get("one").is_ready)
    with JobsClient(provider.connect("one"), cluster="one") as jobs:
        cloud.standin.fault("expire", token="gil-token")
        with pytest.raises(LLMOpsError, match="rejected the credentials") as caught:
            jobs.list()
    assert "sign in again" in caught.value.remedy
    # Status and lists say the same, and nothing about Ray.
    info = until(lambda: _with_trouble(provider))
    assert "rejected the credentials: expired or wrong (401)" in info.message
    assert "sign in again" in info.remedy
    assert "does not answer" not in info.message


def _with_trouble(provider: KubeRayProvider) -> Any:
    info = provider.get("one")
    return info if "credentials" in info.message else None
