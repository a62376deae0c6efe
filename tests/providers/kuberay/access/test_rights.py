"""The rights of a template: the rendered Role is enough, and each missing one is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ConfigError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.api.rbac import RULES
from llmops_kernel.providers.kuberay.needs import needs_of
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from llmops_kernel.providers.protocol import ClusterSize
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud

FOLDER = Path(__file__).parents[4] / "cluster_templates"
TEMPLATES = ("gcp-h100", "kind-cpu", "mixed", "onprem-a100", "spot")


def granted(cloud: Cloud, name: str, objects: list[dict[str, Any]]) -> KubeRayProvider:
    """Put the objects as an administrator would, and log in as the user that they name."""
    cloud.standin.user(name, f"{name}-token")
    for body in objects:
        cloud.standin.put(body)
    cloud.login(f"{name}-token")
    close_caches()
    close_routes()
    return KubeRayProvider(cloud.home)


@pytest.mark.usefixtures("farm")
def test_the_rendered_role_is_enough_for_a_clusters_life(cloud: Cloud) -> None:
    template = cloud.template(raycluster={})
    text = cloud.provider.roles(template, subject="user:hal")
    provider = granted(cloud, "hal", list(yaml.safe_load_all(text)))
    found, where = provider.rights(template)
    assert cloud.namespace in where
    assert [one for one in found if not one.is_granted and not one.is_cluster_wide] == []
    # The route to the stand-in's Ray is an annotation, which makes it a template of its own.
    provider.up(cloud.template())
    with JobsClient(provider.connect("one"), cluster="one") as jobs:
        assert jobs.list() == []
    provider.scale("one", ClusterSize(workers={"w": 3}))
    provider.suspend("one")
    provider.delete("one")


def test_each_missing_right_is_found(cloud: Cloud) -> None:
    template = cloud.template(raycluster={})
    for need in needs_of(template):
        if need.is_cluster_wide or need.name:
            continue
        rules = [
            PolicyRule((each.group,), (each.resource,), each.verbs)
            for each in needs_of(template)
            if (each.group, each.resource) != (need.group, need.resource)
        ]
        cloud.standin.user("ivy", "ivy-token", rules, cloud.namespace)
        cloud.login("ivy-token")
        found, _ = KubeRayProvider(cloud.home).rights(template)
        named = {(one.verb, one.resource) for one in found if one.is_granted is False}
        assert {(verb, need.resource) for verb in need.verbs} <= named
        assert all(one.off for one in found)


def test_what_is_for_one_object_names_it(cloud: Cloud) -> None:
    role, binding = yaml.safe_load_all(
        cloud.provider.roles(
            cloud.template(raycluster={}), subject="service-account:hub", namespace="ml"
        )
    )
    by_resource = {rule["resources"][0]: rule for rule in role["rules"] if "resourceNames" in rule}
    assert by_resource["secrets"]["resourceNames"] == ["one"]
    assert by_resource["services/proxy"]["resourceNames"] == ["one-head-svc:dashboard"]
    assert by_resource["configmaps"]["verbs"] == ["get", "patch"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "hub", "namespace": "ml"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_cluster_role_has_only_what_a_role_cannot_grant(cloud: Cloud) -> None:
    template = cloud.template()
    text = cloud.provider.roles(template, subject="group:ml", cluster_wide=True)
    role, binding = yaml.safe_load_all(text)
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    resources = {rule["resources"][0] for rule in role["rules"]}
    assert resources == {"nodes", "pods", "clusterqueues", "customresourcedefinitions"}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_rbac_yaml_grants_what_each_template_needs(name: str) -> None:
    template = load_cluster_template(FOLDER / f"{name}.yaml")
    assert isinstance(template, KubeRayTemplate)
    role = next(iter(yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())))
    for need in needs_of(template):
        if need.is_cluster_wide:
            continue
        assert need.rule == RULES[need.group, need.resource]
        rule = role["rules"][need.rule - 1]
        assert set(need.verbs) <= set(rule["verbs"]), need


def test_what_only_some_clusters_need(cloud: Cloud) -> None:
    def named(template: KubeRayTemplate, *, lacks_auth: bool = False) -> set[tuple[str, str]]:
        needs = needs_of(template, lacks_auth=lacks_auth)
        return {(verb, need.resource) for need in needs for verb in need.verbs}

    usual = named(cloud.template())
    assert named(cloud.template(), lacks_auth=True) - usual == {("create", "secrets")}


def test_a_subject_that_nobody_can_be(cloud: Cloud) -> None:
    with pytest.raises(ConfigError, match="who gets the rights") as caught:
        cloud.provider.roles(cloud.template(), subject="ann")
    assert "user:NAME" in caught.value.remedy
