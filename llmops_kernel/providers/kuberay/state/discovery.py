"""Finds RayClusters in all known contexts and namespaces, and gives each a unique name."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import ClusterNotFoundError, LLMOpsError
from llmops_kernel.providers.kuberay.api import kubeconfig
from llmops_kernel.providers.kuberay.api.cache import Cache, Obj, Snapshot, rayclusters_of
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.api.paths import raycluster_path
from llmops_kernel.providers.kuberay.resource import own_clusters
from llmops_kernel.store import paths
from llmops_kernel.store.files import private_folder

# --- Searched scopes: the current context, and wherever `up` created a cluster ---


@dataclass(frozen=True, order=True)
class KubeScope:
    """A namespace of a Kubernetes cluster."""

    context: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.context}/{self.namespace}"


def known_scopes(home: Path) -> tuple[KubeScope, ...]:
    """Return the known scopes, the current one first. Without the file only convenience is lost."""
    try:
        config = kubeconfig.read_kubeconfig()
    except LLMOpsError:
        return ()
    scopes = [KubeScope(*pair) for pair in _read(home) if pair[0] in config.contexts]
    if config.current in config.contexts:
        current = config.contexts[config.current]
        scopes.insert(0, KubeScope(current.name, current.namespace))
    return tuple(dict.fromkeys(scopes))


def is_remembered(home: Path, scope: KubeScope) -> bool:
    return (scope.context, scope.namespace) in _read(home)


def may_be_at(home: Path, scope: KubeScope, name: str) -> bool:
    """Return whether this user has used a cluster of that name there and not deleted it."""
    return own_clusters.is_recorded(home, scope.context, scope.namespace, name)


def has_any(home: Path) -> bool:
    return bool(_read(home))


def remember(home: Path, scope: KubeScope) -> None:
    """Add the scope to the file.

    If it cannot be written, nothing fails: the cluster exists anyway.
    """
    pairs = _read(home)
    pair = (scope.context, scope.namespace)
    if pair in pairs:
        return
    path = _path(home)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with suppress(OSError):
        private_folder(path.parent)
        part.write_text(json.dumps([list(item) for item in [*pairs, pair]], indent=1))
        part.replace(path)


def _read(home: Path) -> list[tuple[str, str]]:
    try:
        content = json.loads(_path(home).read_bytes())
    except (OSError, ValueError):
        return []
    pairs = content if isinstance(content, list) else []
    return [(str(pair[0]), str(pair[1])) for pair in pairs if _is_pair(pair)]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(item, str) for item in pair)


def _path(home: Path) -> Path:
    return home / "kuberay" / "places.json"


def default_home() -> Path:
    return paths.home().absolute()


_PATIENCE_S = 5.0
_ASKED_S = 3.0
"""Timeout for all namespaces together: the watches have waited for them before."""
_NAMED = 5


@dataclass(frozen=True)
class LocatedCluster:
    """A RayCluster, where it is, and how current that is."""

    name: str
    """The name that is shown: unique among all clusters that this user knows."""
    scope: KubeScope
    kube: Kube
    raycluster: Obj
    cache: Cache
    error: KubeError | None = None
    """Why it may be out of date."""
    old_s: float = 0.0
    home: Path = field(default_factory=default_home)
    """Where this user's decisions about clusters are kept."""

    @property
    def own_name(self) -> str:
        return str(self.raycluster["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raycluster["metadata"].get("uid", ""))

    @property
    def path(self) -> str:
        return raycluster_path(self.scope.namespace, self.own_name)


@dataclass(frozen=True)
class Survey:
    """All clusters of all namespaces, and the errors of namespaces that cannot be asked."""

    found: tuple[LocatedCluster, ...]
    troubles: tuple[LLMOpsError, ...] = ()
    is_silent: bool = False
    """No namespace could be listed, and not because there is none."""

    def named(self, name: str) -> list[LocatedCluster]:
        exact = [located for located in self.found if located.name == name]
        return exact or [located for located in self.found if located.own_name == name]


def survey(home: Path, *, taken: Collection[str] = (), patience_s: float = _PATIENCE_S) -> Survey:
    """Return all clusters.

    `taken` names belong to clusters of other providers: ours of that name are qualified.
    """
    caches, troubles = _open_caches(home)
    for _, _, cache in caches:
        cache.start()
    # From here: on a busy machine the first client alone takes seconds to load.
    deadline_s = time.monotonic() + patience_s
    snapshots: list[tuple[KubeScope, Kube, Cache, Snapshot]] = []
    denied: list[tuple[KubeScope, KubeDenied]] = []
    for scope, kube, cache in caches:
        try:
            left_s = max(0.05, deadline_s - time.monotonic())
            snapshots.append((scope, kube, cache, cache.snapshot(patience_s=left_s)))
        except KubeDenied as error:
            denied.append((scope, error))
        except KubeError as error:
            # A user whose kubeconfig is for other things need not see errors about KubeRay.
            if error.reason != "ApiNotFound" or is_remembered(home, scope):
                troubles.append(error)
    errors = (*troubles, *joined(denied))
    return Survey(
        _with_unique_names(snapshots, taken, home), errors, is_silent=bool(errors) and not snapshots
    )


def joined(denied: Sequence[tuple[KubeScope, KubeDenied]]) -> list[KubeDenied]:
    """Return one error for all namespaces of a context in which the same right is missing."""
    groups: dict[tuple[str, str, str], list[tuple[KubeScope, KubeDenied]]] = {}
    for scope, error in denied:
        rights = ",".join(right for right, _ in error.causes)
        groups.setdefault((scope.context, error.reason, rights), []).append((scope, error))
    return [_combined(group) for group in groups.values()]


def _combined(group: Sequence[tuple[KubeScope, KubeDenied]]) -> KubeDenied:
    (_, first), *others = group
    if not others:
        return first
    names = ", ".join(scope.namespace for scope, _ in others[:_NAMED])
    rest = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return KubeDenied(
        f"{first.message}. The same in {counted(len(others), 'namespace')} where clusters were"
        f" used before: {names}{rest}",
        remedy=first.remedy,
        code=first.code,
        reason=first.reason,
        causes=first.causes,
    )


def find(name: str, home: Path, *, taken: Collection[str] = ()) -> LocatedCluster:
    """Return a cluster by its name, or by `context/namespace/name` wherever it is.

    Raises ClusterNotFoundError, and KubeError when it may be in a namespace that cannot be asked.
    """
    result = survey(home, taken=taken)
    matches = result.named(name) or _fetch_directly(name, home)
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(f"{located.scope}/{located.own_name}" for located in matches)
        raise ClusterNotFoundError(
            f"{len(matches)} clusters have the name {name!r}: {names}",
            remedy="use the full name",
        )
    if result.troubles:
        raise result.troubles[0]
    names = ", ".join(located.name for located in result.found) or "none"
    scopes = ", ".join(map(str, known_scopes(home))) or "nowhere: there is no kubeconfig"
    raise ClusterNotFoundError(
        f"There is no RayCluster {name!r}; known: {names} (searched in {scopes})",
        remedy=f"llmops up {name}",
    )


def is_there(name: str, home: Path, *, taken: Collection[str] = ()) -> bool:
    """Return whether it exists.

    Raises KubeError if unknown, ClusterNotFoundError for an ambiguous name.
    """
    result = survey(home, taken=taken)
    if result.named(name) or _fetch_directly(name, home):
        return True
    if result.troubles:
        raise result.troubles[0]
    return False


def scope_of(name: str) -> tuple[KubeScope, str] | None:
    """Split `context/namespace/name`; the context may contain slashes itself."""
    parts = name.rsplit("/", 2)
    if len(parts) != 3 or not all(parts):
        return None
    return KubeScope(parts[0], parts[1]), parts[2]


def fetched(
    scope: KubeScope, name: str, *, label: str | None = None, home: Path | None = None
) -> LocatedCluster | None:
    """Read it from the API server, not from the watch; None if it does not exist.

    Raises KubeError.
    """
    home = home or default_home()
    kube = open_kube(scope.context)
    cache = rayclusters_of(kube, scope.namespace)
    try:
        raycluster = kube.get(raycluster_path(scope.namespace, name))
    except KubeError as error:
        if error.code == 404 and error.reason == "NotFound":
            return None
        raise
    cache.put(raycluster)
    return LocatedCluster(label or name, scope, kube, raycluster, cache, home=home)


def _open_caches(home: Path) -> tuple[list[tuple[KubeScope, Kube, Cache]], list[LLMOpsError]]:
    caches: list[tuple[KubeScope, Kube, Cache]] = []
    troubles: list[LLMOpsError] = []
    for scope in known_scopes(home):
        try:
            kube = open_kube(scope.context)
        except LLMOpsError as error:
            troubles.append(error)
        else:
            caches.append((scope, kube, rayclusters_of(kube, scope.namespace)))
    return caches, troubles


def _with_unique_names(
    snapshots: Sequence[tuple[KubeScope, Kube, Cache, Snapshot]], taken: Collection[str], home: Path
) -> tuple[LocatedCluster, ...]:
    counts = Counter(name for *_, snapshot in snapshots for name in snapshot.items)
    clusters = []
    for scope, kube, cache, snapshot in snapshots:
        for own_name, raycluster in snapshot.items.items():
            is_unique = counts[own_name] == 1 and own_name not in taken
            name = own_name if is_unique else f"{scope}/{own_name}"
            clusters.append(
                LocatedCluster(
                    name, scope, kube, raycluster, cache, snapshot.error, snapshot.old_s, home
                )
            )
    return tuple(sorted(clusters, key=lambda located: located.name))


def _fetch_directly(name: str, home: Path) -> list[LocatedCluster]:
    """Return what the watches have not reported yet, or what is in a namespace not looked at."""
    whole = scope_of(name)
    if whole is not None:
        located = fetched(*whole, label=name, home=home)
        return [located] if located is not None else []
    by_scope: dict[KubeScope, LocatedCluster] = {}

    def ask(scope: KubeScope) -> None:
        with suppress(LLMOpsError):
            located = fetched(scope, name, home=home)
            if located is not None:
                by_scope[scope] = located

    scopes = known_scopes(home)
    # Daemon threads: a context that does not answer holds up neither the others nor the exit.
    threads = [threading.Thread(target=ask, args=(scope,), daemon=True) for scope in scopes]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + _ASKED_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    located_by_scope = dict(by_scope)
    return [located_by_scope[scope] for scope in scopes if scope in located_by_scope]
