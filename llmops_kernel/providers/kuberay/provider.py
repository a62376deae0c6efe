"""The provider for clusters on Kubernetes. The RayCluster resources are the only records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterNotFoundError, ClusterStateError, ConfigError
from llmops_kernel.providers.capabilities import (
    EditEffect,
    GuardedCluster,
    OutputStorage,
    RenderedTemplate,
    RightState,
    RunStatus,
    TimedJob,
    require_possible,
)
from llmops_kernel.providers.kuberay.api import rights
from llmops_kernel.providers.kuberay.api.kubeconfig import is_available
from llmops_kernel.providers.kuberay.life import guard, lifecycle
from llmops_kernel.providers.kuberay.resource import names, own_clusters, status
from llmops_kernel.providers.kuberay.resource.output_storage import output_storage_of
from llmops_kernel.providers.kuberay.state import discovery, preview, run_status
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster
from llmops_kernel.providers.kuberay.state.idle_policy import guard_input
from llmops_kernel.providers.kuberay.state.info import info_of, infos_of, latest_s
from llmops_kernel.providers.kuberay.state.ray_probe import connection_of
from llmops_kernel.providers.kuberay.waiting.wait import wait_until_ready
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterSize,
    Connection,
    Progress,
    Survey,
)
from llmops_kernel.providers.registry import names_before


class KubeRayProvider(ClusterProvider):
    """Keeps no state except watches, which the whole process shares.

    The registry imports it where there is a kubeconfig. What turns a template into a manifest is
    imported when it is used: lists and submissions need none of it.
    """

    name = "kuberay"

    def __init__(
        self, home: Path | None = None, *, taken: Callable[[], Collection[str]] | None = None
    ) -> None:
        """`taken` returns names of other providers' clusters; default: those seen before."""
        self._home = (home or discovery.default_home()).absolute()
        self._taken = taken or (lambda: names_before(self.name, home=self._home))

    def up(
        self,
        template: AnyTemplate,
        *,
        template_path: Path | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Attach to the RayCluster of that name, or create it; a suspended one is resumed.

        A cluster with another template is not changed; the message says what applying this one
        would do, and who made a cluster of somebody else. Raises ClusterStateError if that has
        another specification, ClusterStartError, KubeError, ConfigError.
        """
        from llmops_kernel.providers.kuberay.apply import note_of
        from llmops_kernel.providers.kuberay.life.create import create_or_find

        own, report = _own(template), progress or _silent
        made = create_or_find(own, home=self._home, report=report)
        located = made.located
        note = "" if made.is_new else note_of(located, own, home=self._home)
        if note:
            report(note)
        if not made.is_new:
            lifecycle.resume_unasked(located)
        context = located.scope.context
        own_clusters.note(self._home, located.raycluster, template=own, context=context)
        name = self._name_of(located)
        info = self.wait(name, progress=progress) if wait else self.get(name)
        return info.model_copy(update={"message": note}) if note else info

    def get(self, name: str) -> ClusterInfo:
        """Return the cluster's info. Raises ClusterNotFoundError, KubeError."""
        located = self._find(name)
        return info_of(located, until_s=latest_s(located))

    def names(self) -> tuple[str, ...]:
        """Return the names of all clusters. Raises KubeError when no namespace can be asked."""
        survey = self._survey()
        if survey.troubles and not survey.found:
            raise survey.troubles[0]
        return tuple(located.name for located in survey.found)

    @property
    def is_used(self) -> bool:
        """Return whether clusters were created with it in this home."""
        return is_available() and discovery.has_any(self._home)

    def locate(self, name: str) -> bool:
        """Return whether there is a cluster of that name, short or in full, listed or not.

        Raises KubeError, and ClusterNotFoundError when several have that name.
        """
        return is_available() and discovery.is_there(name, self._home, taken=self._taken())

    def list(self) -> list[ClusterInfo]:
        """Return all clusters. Raises KubeError when no namespace can be asked."""
        seen = self.survey()
        if seen.errors and not seen.infos:
            raise seen.errors[0]
        return [*seen.infos]

    def survey(self) -> Survey:
        """Return all clusters, and the errors of namespaces that could not be asked."""
        survey = self._survey()
        silent = (self.name,) if survey.is_silent else ()
        return Survey(tuple(infos_of(survey.found)), survey.troubles, silent)

    def down(self, name: str) -> None:
        """Suspend a cluster; no effect if it is suspended.

        Raises ClusterNotFoundError, KubeError.
        """
        self.suspend(name)

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        """Return what an action would do.

        Raises ClusterNotFoundError, ClusterStateError, KubeError.
        """
        located = self._find(name)
        # Else a slow answer counts as granted, and the refusal comes after the confirmation.
        rights.missing(located.kube, located.scope.namespace, patience_s=rights.ANSWER_S)
        info = info_of(located)
        require_possible(info, action)
        return preview.preview_of(located, info, action)

    def suspend(self, name: str) -> None:
        """Suspend a cluster: its pods are deleted, its definition stays.

        Under Kueue only the workers are deleted. Raises ClusterNotFoundError, KubeError.
        """
        lifecycle.suspend(self._find(name))

    def resume(
        self, name: str, *, progress: Progress | None = None, wait: bool = True
    ) -> ClusterInfo:
        """Resume a suspended cluster.

        Raises ClusterNotFoundError, KubeError, and what `wait` raises.
        """
        lifecycle.resume(self._find(name))
        return self.wait(name, progress=progress) if wait else self.get(name)

    def scale(
        self,
        name: str,
        size: ClusterSize,
        *,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Change the number of replicas of the worker groups named in `size`.

        With `wait` it also sees whether a GitOps manager sets them back. Raises
        ClusterNotFoundError, ClusterStateError, KubeError, and what `wait` raises.
        """
        self.check_scale(name, size)
        located, numbers = self._find(name), size.workers or {}
        lifecycle.scale(located, numbers)
        if not wait:
            return self.get(name)
        return lifecycle.wait_for_size(
            numbers,
            find=lambda: self._find(name),
            ask=lambda: self.get(name),
            report=progress or _silent,
        )

    def check_scale(self, name: str, size: ClusterSize) -> None:
        """Raise what `scale` refuses: other numbers than replicas, bounds, its state, rights."""
        located = self._find(name)
        info = info_of(located)
        if not size.workers or size.num_cpus is not None or size.num_gpus is not None:
            groups = ", ".join(f"{group.name} ({group.replicas})" for group in info.groups)
            raise ClusterStateError(
                f"Cluster {name!r} is scaled by worker group: {groups or 'none'}",
                remedy=f"llmops scale {name} --workers GROUP=NUMBER",
            )
        require_possible(info, ClusterAction.SCALE)
        lifecycle.check_scale(located, size.workers)

    def delete(self, name: str) -> None:
        """Delete a cluster and return when it is gone.

        Raises ClusterNotFoundError, ClusterError, KubeError.
        """
        located = self._find(name)
        lifecycle.delete(located)
        own_clusters.forget(self._home, located.raycluster, context=located.scope.context)

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Wait until a cluster is ready.

        Raises ClusterNotFoundError, ClusterDeadError, ClusterStartError, KubeError.
        """
        return wait_until_ready(
            lambda: self.get(name),
            self._find(name).cache,
            timeout_s=timeout_s,
            report=progress or _silent,
            is_done=lambda _: lifecycle.is_observed(self._find(name)),
        )

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        """Keep idle guards away for `for_s` seconds. Raises ClusterNotFoundError, KubeError."""
        lifecycle.keep(self._find(name), for_s=for_s)
        return self.get(name)

    def connect(self, name: str) -> Connection:
        """Connect to a cluster. Raises ClusterNotFoundError, ClusterUnreachableError, KubeError."""
        located = self._find(name)
        phase = status.phase_of(located.raycluster)
        if phase.state == "stopped" and not phase.head_runs:
            raise ClusterNotFoundError(
                f"Cluster {name!r} is stopped: {phase.message}", remedy=f"llmops resume {name}"
            )
        return connection_of(located)

    def guarded(self) -> tuple[GuardedCluster, ...]:
        """Return the clusters with an idle policy that this user made or watches."""
        return tuple(
            guard.GuardedRayCluster(located)
            for located in self._survey().found
            if guard_input(located.raycluster) is not None
            and own_clusters.read(self._home, located.raycluster).is_guarded
        )

    def show_run(self, name: str, shown: RunStatus) -> bool:
        """Show the newest run as annotations. Raises ClusterNotFoundError, KubeError."""
        return run_status.show(self._find(name), shown)

    def watch(self, name: str) -> None:
        """Let this user's guards act on somebody else's. Raises ClusterNotFoundError, KubeError."""
        own_clusters.note(self._home, self._find(name).raycluster, is_guarded=True)

    def guarded_cluster(self, name: str) -> GuardedCluster:
        """Return the cluster as guards see it. Raises ClusterNotFoundError, KubeError."""
        return guard.GuardedRayCluster(self._find(name))

    def ends_head(self, name: str, action: ClusterAction) -> bool:
        """Return whether Kueue would delete the head too. Raises ClusterNotFoundError, KubeError"""
        return preview.ends_head(self._find(name), action)

    def head_is_gone(self, name: str) -> bool:
        """Return whether the head's pod and its files are lost. Raises ClusterNotFoundError."""
        return guard.head_is_gone(self._find(name))

    def template(self, name: str) -> KubeRayTemplate | None:
        """Return the template that it was made from. Raises ClusterNotFoundError, KubeError."""
        return status.template_of(self._find(name).raycluster)

    def output_storage(self, name: str) -> OutputStorage:
        """Return where its pods write outputs. Raises ClusterNotFoundError, KubeError."""
        return output_storage_of(self._find(name).raycluster)

    def render(self, template: AnyTemplate, *, namespace: str | None = None) -> RenderedTemplate:
        """Return the manifest that `up` would create, without asking the API server."""
        from llmops_kernel.providers.kuberay.render import dry_run, manifest

        own = _own(template)
        return manifest.render(own, namespace=namespace or dry_run.usual_namespace(own))

    def dry_run(
        self, template: AnyTemplate, *, namespace: str | None = None
    ) -> tuple[RenderedTemplate, str]:
        """Return the manifest that the API server accepts, and its context and namespace.

        Raises KubeError with every field that is refused.
        """
        from llmops_kernel.providers.kuberay.render import dry_run

        return dry_run.accepted(_own(template), namespace=namespace)

    def timed_job(
        self, template: AnyTemplate, job: TimedJob, *, namespace: str | None = None
    ) -> str:
        """Return a CronJob that runs a schedule's command, without asking the API server."""
        from llmops_kernel.providers.kuberay.render import cron_job, dry_run

        own = _own(template)
        namespace = namespace or dry_run.usual_namespace(own)
        return cron_job.cron_job(own, job, namespace=namespace)

    def scrape_config(self) -> dict[str, Any]:
        """Return the entry of `scrape_configs` for a Prometheus in the Kubernetes cluster."""
        pod = "__meta_kubernetes_pod_"
        return {
            "job_name": "llmops-kuberay",
            "kubernetes_sd_configs": [
                {"role": "pod", "selectors": [{"role": "pod", "label": names.RAY_CLUSTER_LABEL}]}
            ],
            "relabel_configs": [
                {
                    "source_labels": [f"{pod}container_port_name"],
                    "regex": "metrics",
                    "action": "keep",
                },
                {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
                {"source_labels": [f"{pod}name"], "target_label": "pod"},
            ],
        }

    def rights(
        self, template: AnyTemplate, *, namespace: str | None = None
    ) -> tuple[Sequence[RightState], str]:
        """Return the rights that its clusters need, and where they were asked for."""
        from llmops_kernel.providers.kuberay.needs import rights_for

        return rights_for(_own(template), namespace=namespace)

    def roles(
        self,
        template: AnyTemplate,
        *,
        subject: str,
        namespace: str | None = None,
        cluster_wide: bool = False,
    ) -> str:
        """Return a Role, or the optional ClusterRole, and its binding to `subject`."""
        from llmops_kernel.providers.kuberay.needs import roles_for

        own = _own(template)
        return roles_for(own, subject=subject, namespace=namespace, cluster_wide=cluster_wide)

    def effect(self, template: AnyTemplate, *, name: str | None = None) -> EditEffect:
        """Return what `apply` would do. Raises ClusterNotFoundError, KubeError."""
        from llmops_kernel.providers.kuberay.apply import effect_of

        return effect_of(self._find(name or template.name), _own(template))

    def apply(
        self, template: AnyTemplate, *, name: str | None = None, force: bool = False
    ) -> ClusterInfo:
        """Make it what the template says; `force` takes over fields that others own.

        Raises ClusterNotFoundError, ClusterStateError, KubeError.
        """
        from llmops_kernel.providers.kuberay.apply import apply

        located, own = self._find(name or template.name), _own(template)
        apply(located, own, force=force)
        own_clusters.note(self._home, located.raycluster, template=own)
        return self.get(located.name)

    def _survey(self) -> discovery.Survey:
        """Return all clusters and where they are; none without a kubeconfig."""
        if not is_available():
            return discovery.Survey(())
        return discovery.survey(self._home, taken=self._taken())

    def _find(self, name: str) -> LocatedCluster:
        if not is_available():
            raise ClusterNotFoundError(
                f"There is no cluster {name!r}: no kubeconfig is found, or the package"
                " `kubernetes` is not installed",
                remedy="put a kubeconfig at ~/.kube/config (or KUBECONFIG), and"
                " `pip install 'llmops-kernel[kubernetes]'`",
            )
        return discovery.find(name, self._home, taken=self._taken())

    def _name_of(self, located: LocatedCluster) -> str:
        """Return the name to show: its own name unless another cluster has the same."""
        for other in self._survey().found:
            if other.uid == located.uid:
                return other.name
        return f"{located.scope}/{located.own_name}"


def _own(template: AnyTemplate) -> KubeRayTemplate:
    """Return the template. Raises ConfigError for a template of another provider."""
    if not isinstance(template, KubeRayTemplate):
        raise ConfigError(
            f"Template {template.name} is for provider {template.provider}: it has no manifest",
            remedy="llmops cluster init NAME --kind kuberay writes one for Kubernetes",
        )
    return template


def _silent(line: str) -> None:
    """Ignore the line: there is no listener."""
