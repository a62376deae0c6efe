"""The Role that users are given has each rule where our messages say that it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.providers.kuberay.api.rbac import RULES
from llmops_kernel.providers.kuberay.api.rights import ALL, Right

FILE = Path(__file__).parents[4] / "cluster_templates" / "rbac.yaml"


@pytest.mark.parametrize(("group", "resource"), RULES, ids="/".join)
def test_each_resource_stands_in_its_rule(group: str, resource: str) -> None:
    rule = rules()[RULES[group, resource] - 1]
    assert rule["apiGroups"] == [group]
    assert resource in rule["resources"]


def test_every_rule_is_named_by_a_resource() -> None:
    named = {(g, r) for rule in rules() for g in rule["apiGroups"] for r in rule["resources"]}
    assert named == set(RULES)


def rules() -> list[dict[str, Any]]:
    role, _ = yaml.safe_load_all(FILE.read_text())
    found: list[dict[str, Any]] = role["rules"]
    return found


@pytest.mark.parametrize("right", ALL, ids=lambda right: f"{right.verb} {right.resource}")
def test_a_right_is_given_by_the_rule_that_is_named(right: Right):
    rule = rules()[right.rule - 1]
    assert rule["apiGroups"] == [right.group]
    assert right.resource in rule["resources"]
    assert right.verb in rule["verbs"]


def test_the_rules_are_numbered_for_people():
    found: list[int] = []
    for first, joint, last in re.findall(r"# Rules? (\d+)(?: (to|and) (\d+))?\.", FILE.read_text()):
        found += range(int(first), int(last) + 1) if joint else [int(first)]
    assert found == list(range(1, len(rules()) + 1))
