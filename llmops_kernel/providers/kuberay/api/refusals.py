"""Explains why the API server rejects an object: quota, priority class, policy, rights."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.providers.kuberay.api.rbac import rbac_file
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.protocol import Waiting

_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<name>[^,\s]+), requested: (?P<asked>\S+), "
    r"used: (?P<used>\S+), limited: (?P<limit>[^\s\]}\"']+)"
)
_FAILED_QUOTA: Final = re.compile(r"failed quota: (?P<name>[^:]+): must specify (?P<what>[^\"'}]+)")
_PRIORITY: Final = re.compile(r"no PriorityClass with name \"?(?P<name>[\w.-]+)\"? was found")
_ACCOUNT: Final = re.compile(r"serviceaccount \"(?P<name>[^\"]+)\" not found")
_SECURITY: Final = re.compile(r"violates PodSecurity \"(?P<level>[^\"]+)\": (?P<why>.+)")
_WEBHOOK: Final = re.compile(
    r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<why>.+)"
)
_POLICY: Final = re.compile(
    r"ValidatingAdmissionPolicy '(?P<name>[^']+)' with binding '[^']+' denied request: (?P<why>.+)"
)
_RANGE: Final = re.compile(
    r"(?P<what>(?:maximum|minimum) \S+ usage per (?:Container|Pod) is [^\"\],]+)"
)
_TERMINATING: Final = re.compile(r"because it is being terminated")
_NOT_ALLOWED: Final = re.compile(r"User \"(?P<user>[^\"]+)\" cannot (?P<what>.+)")


def refusal(message: str) -> Waiting | None:
    """Return a readable sentence; None for a text that is no known rejection."""
    message = message.replace('\\"', '"')
    if found := _QUOTA.search(message):
        return _quota(found)
    for pattern, kind, reported, remedy in _KNOWN:
        if found := pattern.search(message):
            parts = {name: one_line(value) for name, value in found.groupdict().items()}
            return Waiting(
                message=reported.format(**parts),
                remedy=remedy.format(**parts),
                kind=kind,
                is_stuck=True,
            )
    return None


def is_of_policy(message: str) -> bool:
    """Return whether an admission policy of the API server rejects the object."""
    return bool(_POLICY.search(message))


def _quota(found: re.Match[str]) -> Waiting:
    """Parse `requested: pods=1, used: pods=10, limited: pods=10`, each with several resources."""
    asked, used, limit = (_amounts(found[part]) for part in ("asked", "used", "limit"))
    reported = [
        f"{name} is at {used.get(name, '?')} of {limit.get(name, '?')}, {more} more requested"
        for name, more in asked.items()
    ]
    return Waiting(
        message=f"quota {found['name']} of the namespace is exceeded: {'; '.join(reported)}",
        remedy="suspend or delete a cluster of this namespace, request less, or ask an"
        " administrator to raise the quota: "
        f"`kubectl describe resourcequota {found['name']}`",
        kind="quota",
        is_stuck=True,
    )


def _amounts(part: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in part.strip(",").split(","))
    return {name: value for name, found, value in pairs if found}


_KNOWN: Final = (
    (
        _FAILED_QUOTA,
        "quota",
        "quota {name} of the namespace requires the pods to specify {what}",
        "set cpus and memory of the head and the worker groups in the template",
    ),
    (
        _PRIORITY,
        "priority",
        "there is no PriorityClass {name}",
        "set priority_class to an existing one (`kubectl get priorityclasses`)",
    ),
    (
        _ACCOUNT,
        "account",
        "there is no ServiceAccount {name} in the namespace",
        "`kubectl create serviceaccount {name}`, or set service_account to an existing one",
    ),
    (
        _SECURITY,
        "policy",
        "the namespace's pod security level {level} forbids the pods: {why}",
        "change the pods with `pod:` in the template, or ask an administrator to change the level",
    ),
    (
        _RANGE,
        "quota",
        "a LimitRange of the namespace forbids the pods: {what}",
        "request less in the template, or ask an administrator to raise the limit: `kubectl"
        " describe limitrange`",
    ),
    (
        _TERMINATING,
        "namespace",
        "the namespace is being deleted",
        "wait until it is deleted and create it again, or use another namespace",
    ),
    (
        _WEBHOOK,
        "policy",
        "admission webhook {name} denied the request: {why}",
        "correct in the template what the message names",
    ),
    (
        _POLICY,
        "policy",
        "admission policy {name} denied the request: {why}",
        "correct in the template what the message names; `kubectl get validatingadmissionpolicy"
        " {name} -o yaml` shows the rule",
    ),
    (
        _NOT_ALLOWED,
        "permission",
        "{user} cannot {what}",
        f"ask an administrator to grant it: {rbac_file()} has the rules",
    ),
)
