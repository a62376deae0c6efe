"""Messages of `up` about a RayCluster that exists already, and refusals to use it.

`kubectl create` refuses an existing object and `kubectl apply` changes it; `up` does neither. A
team that shares a template attaches with it; a cluster of that name that somebody else made from
another specification is not what the template asks for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStateError, LLMOpsError
from llmops_kernel.providers.kuberay.edit.apply import effect_of, is_changed, spec_differs
from llmops_kernel.providers.kuberay.life.guard import who
from llmops_kernel.providers.kuberay.resource import names, own_clusters, status
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster

_SHOWN: Final = 100


def note_of(located: LocatedCluster, template: KubeRayTemplate, *, home: Path) -> str:
    """Return what to say of a cluster that is not new; empty for nothing.

    Raises ClusterStateError if somebody else made it and its specification is not the template's,
    and KubeError.
    """
    differs = is_changed(located, template)
    if own_clusters.read(home, located.raycluster).is_guarded:
        return _unlike(located, template) if differs else ""
    if differs and spec_differs(located, template):
        raise ClusterStateError(
            f"RayCluster {located.own_name} in {located.scope} is not yours: {_maker(located)}. Its"
            " specification differs from the template's. It was not changed",
            remedy=f"to use it as it is, name it instead of the template (`llmops status"
            f" {located.own_name}`, `--cluster {located.own_name}`); for a cluster of your own,"
            " choose another `name` in the template; `llmops cluster apply` changes it for all;"
            f" if you created it with another home folder, {_claim(located)}",
        )
    return _sentences(
        f"RayCluster {located.own_name} in {located.scope} is shared: {_maker(located)}",
        _recovery_hint(located),
        _unlike(located, template) if differs else "",
    )


def _sentences(*parts: str) -> str:
    return ". ".join(part.rstrip(".") for part in parts if part)


def _maker(located: LocatedCluster) -> str:
    """Return who made it, as far as its annotation and label say: anybody may change them."""
    by = status.annotation(located.raycluster, names.CREATED_BY)
    if by:
        return f"it was created by {one_line(by, limit=_SHOWN)}"
    if status.is_ours(located.raycluster):
        return "it was created from a manifest, not by this user's `llmops up`"
    return "it was not created by llmops"


def _recovery_hint(located: LocatedCluster) -> str:
    """Return how a user with a new home folder gets back a cluster of the earlier one."""
    if status.annotation(located.raycluster, names.CREATED_BY) != who():
        return ""
    return f"If that was you with another home folder, {_claim(located)}"


def _claim(located: LocatedCluster) -> str:
    """Return how to record an owner: the annotation proves nothing, Kubernetes keeps no creator."""
    return f"`llmops cluster guard {located.own_name}` records that it is yours"


def _unlike(located: LocatedCluster, template: KubeRayTemplate) -> str:
    """Return what to do if the template differs from the one the cluster was created from."""
    try:
        effect = effect_of(located, template)
    except LLMOpsError as error:
        return (
            "It was created from another template; the effect of applying this one is unknown:"
            f" {error}"
        )
    if effect.kind == "nothing":
        return ""
    return _sentences(
        f"It runs as it was created, and the template differs. `llmops cluster apply`:"
        f" {effect.sentence}",
        effect.conflict,
    )
