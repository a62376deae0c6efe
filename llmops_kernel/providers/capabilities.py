"""Protocols of capabilities that only some providers have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.errors import ClusterStateError
from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo, ClusterProvider


def require_possible(info: ClusterInfo, action: ClusterAction) -> None:
    """Raise ClusterStateError with the reason why an action cannot be done now."""
    if reason := info.actions.get(action, ""):
        raise ClusterStateError(
            f"Cannot {action} cluster {info.name!r}: {reason[:1].lower()}{reason[1:]}",
            remedy=f"`llmops status {info.name}` shows its state",
        )


# Editing: templates as manifests, and applying a changed one


class EditKind(StrEnum):
    NOTHING = "nothing"
    LIVE = "live"
    """Takes effect at once; no remaining pod is restarted."""
    NEW_PODS = "new-pods"
    """Running pods stay as they are; only new ones follow the template."""
    RESTART = "restart"
    """Every pod is deleted and recreated, the head with all its jobs as well."""
    REPLACE = "replace"
    """Not possible in place: the cluster must be deleted and created again."""


class EditEffect(BaseModel):
    """Effect of applying a changed template: kind, one sentence, and the details."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    kind: EditKind
    sentence: str
    lines: tuple[str, ...] = ()
    """Each change, as `group h100: replicas 2 -> 4`."""
    stops: tuple[str, ...] = ()
    """Pods and running jobs that an apply ends; what cannot be known is named as unknown."""
    safe_way: str = ""
    """How to get there without losing work; empty where nothing is lost."""
    conflict: str = ""
    """Which other field managers own what changes, and what they may do; empty if none does."""
    refusal: str = ""
    """Why `apply` cannot do it at all, such as a missing right; empty if it can."""

    @property
    def needs_confirmation(self) -> bool:
        return bool(self.stops) or self.kind in (EditKind.RESTART, EditKind.REPLACE)


def require_applicable(effect: EditEffect, *, cluster: str, force: bool) -> None:
    """Raise ClusterStateError for what `apply` refuses: before a confirmation, and an archive."""
    if effect.refusal:
        raise ClusterStateError(
            f"Cluster {cluster!r} cannot be changed to match the template: {effect.refusal}",
            remedy=effect.safe_way or f"`llmops status {cluster}` shows its state",
        )
    if effect.conflict and not force:
        raise ClusterStateError(
            f"Cluster {cluster!r} was not changed: {effect.conflict}",
            remedy="agree with them, or repeat it with `--force` (`force=True`)",
        )


class OutputStorage(BaseModel):
    """Storage where the nodes of a cluster write what runs leave behind."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    runs: str | None
    """Folder or bucket that outlives the cluster; None: only the nodes' disks."""
    copied_bytes: int
    """Without `runs`: size up to which an output is copied to the run folder."""
    pods_go_when_idle: bool = False
    """Ray's autoscaler removes the workers' pods some time after a run, with their disks."""


@runtime_checkable
class SupportsOutputStorage(Protocol):
    """A provider whose nodes do not share the client's disk."""

    def output_storage(self, name: str) -> OutputStorage:
        """Return where outputs are. Raises ClusterNotFoundError."""


class RenderedTemplate(Protocol):
    """The manifest of a template."""

    def to_yaml(self, *, with_companions: bool = True) -> str:
        """Return the manifest, with the other objects that its pods need unless left out."""


@runtime_checkable
class SupportsEdit(Protocol):
    """A provider whose templates become manifests that can be compared and applied."""

    def render(self, template: AnyTemplate, *, namespace: str | None = None) -> RenderedTemplate:
        """Return the manifest that `up` would create, without asking a server.

        Raises ConfigError for a template of another provider.
        """

    def dry_run(
        self, template: AnyTemplate, *, namespace: str | None = None
    ) -> tuple[RenderedTemplate, str]:
        """Return the manifest that the server accepts, and where it was asked.

        Raises an LLMOpsError with every field that is refused.
        """

    def effect(self, template: AnyTemplate, *, name: str | None = None) -> EditEffect:
        """Return what `apply` would do. Raises ClusterNotFoundError, ConfigError."""

    def apply(
        self, template: AnyTemplate, *, name: str | None = None, force: bool = False
    ) -> ClusterInfo:
        """Change a running cluster to follow the template.

        `force` takes over fields that others own. Raises ClusterNotFoundError,
        ClusterStateError, ConfigError.
        """


# Schedules: what runs without this machine


class TimedJob(BaseModel):
    """A command that a cluster's platform runs on a timetable, in a checked out repository."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    WORK: ClassVar[str] = "/llmops"
    CODE: ClassVar[str] = "/llmops/code"
    """Where the repository is, for arguments of `command`."""
    HOME: ClassVar[str] = "/llmops/home"
    """Home folder of llmops, where the run records are."""

    name: str
    cron: str
    timezone: str
    suspended: bool = False
    repository: str
    """URL that pods can reach."""
    branch: str | None = None
    revision: str | None = None
    """The commit, where there is no branch."""
    command: tuple[str, ...]
    """A program and its arguments; no shell reads them."""
    image: str | None = None
    """None: the template's."""
    git_secret: str | None = None
    """Secret whose key `credentials` is a file of git's credential store."""
    claim: str | None = None
    """PersistentVolumeClaim that keeps `HOME`; None: it goes with each pod."""


@runtime_checkable
class SupportsTimedJobs(Protocol):
    """A provider whose platform can run a command on a timetable."""

    def timed_job(
        self, template: AnyTemplate, job: TimedJob, *, namespace: str | None = None
    ) -> str:
        """Return its manifest, without asking a server. Raises ConfigError."""


# Metrics: what Prometheus scrapes


@runtime_checkable
class SupportsMetrics(Protocol):
    """A provider whose clusters Prometheus can scrape."""

    def scrape_config(self) -> dict[str, Any]:
        """Return an entry of Prometheus' `scrape_configs`.

        It finds the nodes of all clusters, also of those that are started later.
        """


# The newest run, shown on the cluster itself


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """What a cluster's own resource shows of its newest run; what is not known is empty."""

    run: str
    submitted_s: float
    """Unix time of the newest attempt's submission: the newest run is shown."""
    state: str
    has_ended: bool
    step: str = ""
    """Steps done and to do, such as `120/1000`."""
    loss: str = ""
    time_left: str = ""
    was_over: bool = False
    """It had ended when it was first read: only what the cluster shows of this run is changed."""


@runtime_checkable
class SupportsRunStatus(Protocol):
    """A provider whose clusters can show the state of their newest run to all who list them."""

    def show_run(self, name: str, shown: RunStatus) -> bool:
        """Show it, unless a newer run is shown, or another client has just shown this one.

        Returns False where this user may not. Raises ClusterNotFoundError, ClusterError.
        """


# Rights: what a user may do


class RightState(BaseModel):
    """A right that a template's clusters need, and whether this user has it."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    verb: str
    resource: str
    group: str = ""
    name: str = ""
    """The only object that it is needed for; empty for all in the namespace."""
    rule: int | None = None
    """Number of the rule in rbac.yaml; None for what only the optional ClusterRole grants."""
    is_cluster_wide: bool = False
    is_granted: bool | None = None
    """None: the server did not answer."""
    off: str = ""
    """Feature that does not work without it."""


@runtime_checkable
class SupportsRights(Protocol):
    """A provider whose server grants rights to users."""

    def rights(
        self, template: AnyTemplate, *, namespace: str | None = None
    ) -> tuple[Sequence[RightState], str]:
        """Return the rights that the template needs, and where the server was asked."""

    def roles(
        self,
        template: AnyTemplate,
        *,
        subject: str,
        namespace: str | None = None,
        cluster_wide: bool = False,
    ) -> str:
        """Return the manifests that grant these rights to `subject`, without asking a server."""


# Guarding: suspending or deleting what is idle


class Act(StrEnum):
    NONE = "none"
    DRAIN = "drain"
    """Ask what runs to stop, so that it saves a checkpoint, and wait."""
    SUSPEND = "suspend"
    DELETE = "delete"


@dataclass(frozen=True)
class GuardState:
    """Next action of an idle guard. Times are Unix seconds; None: nothing is due."""

    act: Act = Act.NONE
    why: str = ""
    """Sentence on what is done now and why, or what it waits for."""
    suspends_at_s: float | None = None
    ends_at_s: float | None = None
    kept_until_s: float | None = None
    idle_since_s: float | None = None

    @property
    def next_s(self) -> float | None:
        """Return when something is due next, if nothing changes until then."""
        times = [at_s for at_s in (self.suspends_at_s, self.ends_at_s) if at_s is not None]
        return min(times, default=None)


class GuardedCluster(Protocol):
    """A cluster as an idle guard sees it. Any number of guards may work at once."""

    @property
    def name(self) -> str: ...

    def guard_state(self) -> GuardState | None:
        """Return what is due; None for a cluster without an idle policy."""

    def record_idle(self, state: GuardState) -> None:
        """Record since when the cluster is idle, to show it in lists of clusters."""

    @property
    def keeps_journals(self) -> bool:
        """Return whether journals of runs outlive the cluster, so that they need no copy."""

    def require_clock(self) -> None:
        """Raise ClusterStateError if this machine's clock is wrong: guards then do nothing."""

    def record_decision(self, reason: str, message: str, *, refused: bool = False) -> None:
        """Write a decision where all users of the cluster see it. Raises nothing."""

    def act(self, state: GuardState) -> bool:
        """Suspend or delete it if it is still as it was seen; return whether that was done.

        Writes the decision as `record_decision` does.
        """


@runtime_checkable
class SupportsGuard(Protocol):
    """A provider whose clusters may have an idle policy."""

    def guarded(self) -> Sequence[GuardedCluster]:
        """Return the clusters with an idle policy that this user made or watches.

        Clusters of others are none of this user's: only their owners have their history.
        """

    def watch(self, name: str) -> None:
        """Include a cluster of somebody else in `guarded`. Raises ClusterNotFoundError."""

    def guarded_cluster(self, name: str) -> GuardedCluster:
        """Return one cluster. Raises ClusterNotFoundError."""


def editor_of(provider: ClusterProvider) -> SupportsEdit:
    """Return the provider's editing part. Raises ClusterStateError where it has none."""
    if isinstance(provider, SupportsEdit):
        return provider
    raise ClusterStateError(
        f"Provider {provider.name} has no manifests: its templates cannot be rendered or applied",
        remedy="use a template of provider kuberay: `llmops cluster init NAME --kind kuberay`",
    )


def rights_of(provider: ClusterProvider) -> SupportsRights:
    """Return the provider's part about rights. Raises ClusterStateError where it has none."""
    if isinstance(provider, SupportsRights):
        return provider
    raise ClusterStateError(
        f"Provider {provider.name} needs no rights: its clusters are processes of this user",
        remedy="use a template of provider kuberay: `llmops cluster init NAME --kind kuberay`",
    )


def guard_of(provider: ClusterProvider) -> SupportsGuard:
    """Return the provider's guarding part. Raises ClusterStateError where it has none."""
    if isinstance(provider, SupportsGuard):
        return provider
    raise ClusterStateError(
        f"Provider {provider.name} has no idle guard: its clusters keep running until they are"
        f" stopped",
        remedy="`llmops suspend NAME` stops one",
    )
