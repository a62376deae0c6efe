"""Clusters on Kubernetes behind the one provider protocol: each RayCluster is its own record."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.clusters.actions import refuse_impossible
from llmops_kernel.clusters.kuberay import places
from llmops_kernel.clusters.provider import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    Connection,
    Progress,
)
from llmops_kernel.clusters.record import cluster_names
from llmops_kernel.config.cluster import AnyTemplate
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterNotFoundError, ClusterStateError, LLMOpsError

if TYPE_CHECKING:
    from llmops_kernel.clusters.kuberay.effect_of_edit import EditEffect
    from llmops_kernel.clusters.kuberay.finding import Found

_GET_S = 0.9
"""For whatever about one cluster has never been asked: a kernel must not hang in silence."""


class KubeRayProvider:
    """Keeps nothing but watches, which the whole process shares.

    Modules that talk HTTP are imported when there is something to talk to: whoever has no
    kubeconfig pays nothing.
    """

    name = "kuberay"

    def __init__(
        self, home: Path | None = None, *, taken: Callable[[], Collection[str]] | None = None
    ) -> None:
        """`taken` tells names of other providers' clusters; default those of local ones."""
        self._home = (home or places.default_home()).absolute()
        self._taken = taken or (lambda: cluster_names(self._home))

    def up(
        self,
        template: AnyTemplate,
        *,
        template_path: Path | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Attach to the RayCluster of that name, or make it; a sleeping one is resumed.

        One that runs with another template is left as it is, and the message tells what
        applying it would do. Raises ClusterStartError, KubeError, ConfigError.
        """
        from llmops_kernel.clusters.kuberay import applying, changing, creating

        assert isinstance(template, KubeRayTemplate)
        tell = progress or _silent
        made = creating.create_or_find(template, home=self._home, tell=tell)
        found, note = made.found, ""
        if not made.is_new:
            if applying.is_changed(found, template):
                note = _unlike(found, template)
                tell(note)
            changing.resume(found)
        name = self._name_of(found)
        info = self.wait(name, progress=progress) if wait else self.get(name)
        return info.model_copy(update={"message": note}) if note else info

    def get(self, name: str) -> ClusterInfo:
        """Raises ClusterNotFoundError, KubeError."""
        from llmops_kernel.clusters.kuberay.describing import info_of

        found = self._find(name)
        return info_of(found, until_s=time.monotonic() + _GET_S)

    def names(self) -> tuple[str, ...]:
        """Raises KubeError when no place can be asked."""
        if not places.is_available():
            return ()
        from llmops_kernel.clusters.kuberay.finding import survey

        looked = survey(self._home, taken=self._taken())
        if looked.troubles and not looked.found:
            raise looked.troubles[0]
        return tuple(found.name for found in looked.found)

    @property
    def is_used(self) -> bool:
        """Clusters were made with it in this home."""
        return places.is_available() and places.has_any(self._home)

    def has(self, name: str) -> bool:
        """Whether there is one of that name, short or in full, listed or not.

        Raises KubeError, and ClusterNotFoundError when several have that name.
        """
        if not places.is_available():
            return False
        from llmops_kernel.clusters.kuberay.finding import is_there

        return is_there(name, self._home, taken=self._taken())

    def list(self) -> list[ClusterInfo]:
        """Raises KubeError when no place can be asked."""
        infos, troubles = self.look()
        if troubles and not infos:
            raise troubles[0]
        return [*infos]

    def look(self) -> tuple[Sequence[ClusterInfo], Sequence[LLMOpsError]]:
        """All clusters, and what is wrong with places that could not be asked."""
        if not places.is_available():
            return [], ()
        from llmops_kernel.clusters.kuberay.describing import infos_of
        from llmops_kernel.clusters.kuberay.finding import survey

        looked = survey(self._home, taken=self._taken())
        return infos_of(looked.found), looked.troubles

    def down(self, name: str) -> None:
        """Suspend it; a suspended one stays so. Raises ClusterNotFoundError, KubeError."""
        self.suspend(name)

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        """Raises ClusterNotFoundError, ClusterStateError, KubeError."""
        from llmops_kernel.clusters.kuberay.describing import info_of
        from llmops_kernel.clusters.kuberay.previewing import preview_of

        found = self._find(name)
        info = info_of(found)
        refuse_impossible(info, action)
        return preview_of(found, info, action)

    def suspend(self, name: str) -> None:
        """Its pods go, its definition stays; under Kueue only the workers go.

        Raises ClusterNotFoundError, KubeError.
        """
        from llmops_kernel.clusters.kuberay import changing

        changing.suspend(self._find(name))

    def resume(
        self, name: str, *, progress: Progress | None = None, wait: bool = True
    ) -> ClusterInfo:
        """Raises ClusterNotFoundError, KubeError, and what `wait` raises."""
        from llmops_kernel.clusters.kuberay import changing

        changing.resume(self._find(name))
        return self.wait(name, progress=progress) if wait else self.get(name)

    def scale(
        self,
        name: str,
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """`workers` gives worker groups other numbers of replicas.

        Raises ClusterNotFoundError, ClusterStateError, KubeError, and what `wait` raises.
        """
        from llmops_kernel.clusters.kuberay import changing
        from llmops_kernel.clusters.kuberay.describing import info_of

        found = self._find(name)
        info = info_of(found)
        if not workers or num_cpus is not None or num_gpus is not None:
            groups = ", ".join(f"{group.name} ({group.replicas})" for group in info.groups)
            raise ClusterStateError(
                f"Cluster {name!r} is made of worker groups: {groups or 'none'}",
                remedy=f"llmops scale {name} --workers GROUP=NUMBER",
            )
        refuse_impossible(info, ClusterAction.SCALE)
        changing.scale(found, workers)
        return self.wait(name, progress=progress) if wait else self.get(name)

    def delete(self, name: str) -> None:
        """Returns when it is gone. Raises ClusterNotFoundError, ClusterError, KubeError."""
        from llmops_kernel.clusters.kuberay import changing

        changing.delete(self._find(name))

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Raises ClusterNotFoundError, ClusterDeadError, ClusterStartError, KubeError."""
        from llmops_kernel.clusters.kuberay.waiting_for import wait_until_ready

        return wait_until_ready(
            lambda: self.get(name),
            self._find(name).cache,
            timeout_s=timeout_s,
            tell=progress or _silent,
        )

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        """Raises ClusterNotFoundError, KubeError."""
        from llmops_kernel.clusters.kuberay import changing

        changing.keep(self._find(name), for_s=for_s)
        return self.get(name)

    def connect(self, name: str) -> Connection:
        """Raises ClusterNotFoundError, ClusterUnreachableError, KubeError."""
        from llmops_kernel.clusters.kuberay import ray_probe, status

        found = self._find(name)
        phase = status.phase_of(found.raycluster)
        if phase.state == "stopped":
            raise ClusterNotFoundError(
                f"Cluster {name!r} is stopped: {phase.message}", remedy=f"llmops resume {name}"
            )
        return ray_probe.connection_of(found)

    def guarded(self) -> tuple[Found, ...]:
        """Clusters whose policy tells a guard what to do, in all places that answer."""
        if not places.is_available():
            return ()
        from llmops_kernel.clusters.kuberay.finding import survey
        from llmops_kernel.clusters.kuberay.guard import watched

        looked = survey(self._home, taken=self._taken()).found
        return tuple(found for found in looked if watched(found.raycluster) is not None)

    def find(self, name: str) -> Found:
        """Raises ClusterNotFoundError, KubeError."""
        return self._find(name)

    def head_is_gone(self, name: str) -> bool:
        """What was only in the head's pod is lost already. Raises ClusterNotFoundError."""
        from llmops_kernel.clusters.kuberay.guarding import head_is_gone

        return head_is_gone(self._find(name))

    def effect(self, template: KubeRayTemplate, *, name: str | None = None) -> EditEffect:
        """What `apply` would do. Raises ClusterNotFoundError, KubeError."""
        from llmops_kernel.clusters.kuberay import applying

        return applying.effect_of(self._find(name or template.name), template)

    def apply(
        self, template: KubeRayTemplate, *, name: str | None = None, force: bool = False
    ) -> ClusterInfo:
        """Make it what the template says; `force` takes over fields that others own.

        Raises ClusterNotFoundError, ClusterStateError, KubeError.
        """
        from llmops_kernel.clusters.kuberay import applying

        found = self._find(name or template.name)
        applying.apply(found, template, force=force)
        return self.get(found.name)

    def _find(self, name: str) -> Found:
        if not places.is_available():
            raise ClusterNotFoundError(
                f"There is no cluster {name!r}: no kubeconfig is found, or the package"
                " `kubernetes` is not installed",
                remedy="put a kubeconfig at ~/.kube/config (or KUBECONFIG), and"
                " `pip install 'llmops-kernel[kubernetes]'`",
            )
        from llmops_kernel.clusters.kuberay.finding import find

        return find(name, self._home, taken=self._taken())

    def _name_of(self, found: Found) -> str:
        """For people: its own name unless another cluster has it too."""
        from llmops_kernel.clusters.kuberay.finding import survey

        for other in survey(self._home, taken=self._taken()).found:
            if other.uid == found.uid:
                return other.name
        return f"{found.place}/{found.own_name}"


def _unlike(found: Found, template: KubeRayTemplate) -> str:
    """The template is not what the cluster was made from: what to do about that."""
    from llmops_kernel.clusters.kuberay.applying import effect_of

    try:
        effect = effect_of(found, template)
    except LLMOpsError as error:
        return f"It runs with another template; what applying this one does is unknown: {error}"
    if effect.kind == "nothing":
        return ""
    return (
        f"It runs as it was made, and the template differs. `llmops cluster apply` of it:"
        f" {effect.sentence}"
    )


def _silent(line: str) -> None:
    """Nobody listens."""
