"""Asks the API server which of the needed rights this user has."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.capabilities import RightState
from llmops_kernel.providers.kuberay.access.needs import Need, needs_of
from llmops_kernel.providers.kuberay.api import features, kubeconfig
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.rights import Right, is_allowed

_THREADS: Final = 16


def rights_for(
    template: KubeRayTemplate, *, namespace: str | None = None
) -> tuple[list[RightState], str]:
    """Ask in the template's first context. Raises KubeError."""
    kube = open_kube(kubeconfig.context_named(next(iter(template.contexts), None)).name)
    place = namespace or template.namespace or kube.namespace
    where = f"context {kube.context}, namespace {place}"
    return reviewed(kube, place, needs_of(template, lacks_auth=_lacks_auth(kube))), where


def _lacks_auth(kube: Kube) -> bool:
    """Return whether `up` makes Ray's token there; False where the CRD may not be read."""
    with suppress(KubeError):
        return "authOptions" in (features.lacking(kube) or ())
    return False


def reviewed(kube: Kube, namespace: str, needs: Sequence[Need]) -> list[RightState]:
    """Return each right with whether it is granted, in the order of `needs`.

    It waits for all answers. Raises KubeError if the first question is not answered.
    """
    pairs = [(need, verb) for need in needs for verb in need.verbs]
    if not pairs:
        return []
    first = _state(kube, namespace, *pairs[0], is_first=True)
    with ThreadPoolExecutor(_THREADS) as pool:
        rest = pool.map(lambda pair: _state(kube, namespace, *pair), pairs[1:])
        return [first, *rest]


def _state(
    kube: Kube, namespace: str, need: Need, verb: str, *, is_first: bool = False
) -> RightState:
    right = Right(verb, need.resource, need.group, name=need.name)
    granted: bool | None
    try:
        granted = is_allowed(kube, "" if need.is_cluster_wide else namespace, right)
    except KubeError:
        if is_first:
            raise
        granted = None
    return RightState(
        verb=verb,
        resource=need.resource,
        group=need.group,
        name=need.name,
        rule=need.rule,
        is_cluster_wide=need.is_cluster_wide,
        is_granted=granted,
        off=need.off,
    )
