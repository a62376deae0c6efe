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

# --- Where clusters are searched: the current context, and wherever `up` created one ---


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
    found = [KubeScope(*pair) for pair in _read(home) if pair[0] in config.contexts]
    if config.current in config.contexts:
        current = config.contexts[config.current]
        found.insert(0, KubeScope(current.name, current.namespace))
    return tuple(dict.fromkeys(found))


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
    known = _read(home)
    pair = (scope.context, scope.namespace)
    if pair in known:
        return
    path = _path(home)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with suppress(OSError):
        private_folder(path.parent)
        part.write_text(json.dumps([list(one) for one in [*known, pair]], indent=1))
        part.replace(path)


def _read(home: Path) -> list[tuple[str, str]]:
    try:
        found = json.loads(_path(home).read_bytes())
    except (OSError, ValueError):
        return []
    pairs = found if isinstance(found, list) else []
    return [(str(pair[0]), str(pair[1])) for pair in pairs if _is_pair(pair)]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)


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
        exact = [one for one in self.found if one.name == name]
        return exact or [one for one in self.found if one.own_name == name]


def survey(home: Path, *, taken: Collection[str] = (), patience_s: float = _PATIENCE_S) -> Survey:
    """Return all clusters.

    `taken` names belong to clusters of other providers: ours of that name are qualified.
    """
    opened, troubles = _opened(home)
    for _, _, cache in opened:
        cache.start()
    # From here: on a busy machine the first client alone takes seconds to load.
    deadline_s = time.monotonic() + patience_s
    seen: list[tuple[KubeScope, Kube, Cache, Snapshot]] = []
    denied: list[tuple[KubeScope, KubeDenied]] = []
    for scope, kube, cache in opened:
        try:
            left_s = max(0.05, deadline_s - time.monotonic())
            seen.append((scope, kube, cache, cache.look(patience_s=left_s)))
        except KubeDenied as error:
            denied.append((scope, error))
        except KubeError as error:
            # A user whose kubeconfig is for other things need not see errors about KubeRay.
            if error.reason != "ApiNotFound" or is_remembered(home, scope):
                troubles.append(error)
    errors = (*troubles, *joined(denied))
    return Survey(_named(seen, taken, home), errors, is_silent=bool(errors) and not seen)


def joined(denied: Sequence[tuple[KubeScope, KubeDenied]]) -> list[KubeDenied]:
    """Return one error for all namespaces of a context in which the same right is missing."""
    groups: dict[tuple[str, str, str], list[tuple[KubeScope, KubeDenied]]] = {}
    for scope, error in denied:
        rights = ",".join(what for what, _ in error.causes)
        groups.setdefault((scope.context, error.reason, rights), []).append((scope, error))
    return [_one_for(group) for group in groups.values()]


def _one_for(group: Sequence[tuple[KubeScope, KubeDenied]]) -> KubeDenied:
    (_, first), *others = group
    if not others:
        return first
    names = ", ".join(other.namespace for other, _ in others[:_NAMED])
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return KubeDenied(
        f"{first.message}. The same in {counted(len(others), 'namespace')} where clusters were"
        f" used before: {names}{more}",
        remedy=first.remedy,
        code=first.code,
        reason=first.reason,
        causes=first.causes,
    )


def find(name: str, home: Path, *, taken: Collection[str] = ()) -> LocatedCluster:
    """Return a cluster by its name, or by `context/namespace/name` wherever it is.

    Raises ClusterNotFoundError, and KubeError when it may be in a namespace that cannot be asked.
    """
    looked = survey(home, taken=taken)
    found = looked.named(name) or _asked(name, home)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{one.scope}/{one.own_name}" for one in found)
        raise ClusterNotFoundError(
            f"{len(found)} clusters have the name {name!r}: {names}",
            remedy="use the full name",
        )
    if looked.troubles:
        raise looked.troubles[0]
    known = ", ".join(one.name for one in looked.found) or "none"
    scopes = ", ".join(map(str, known_scopes(home))) or "nowhere: there is no kubeconfig"
    raise ClusterNotFoundError(
        f"There is no RayCluster {name!r}; known: {known} (searched in {scopes})",
        remedy=f"llmops up {name}",
    )


def is_there(name: str, home: Path, *, taken: Collection[str] = ()) -> bool:
    """Return whether it exists.

    Raises KubeError if unknown, ClusterNotFoundError for an ambiguous name.
    """
    looked = survey(home, taken=taken)
    if looked.named(name) or _asked(name, home):
        return True
    if looked.troubles:
        raise looked.troubles[0]
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


def _opened(home: Path) -> tuple[list[tuple[KubeScope, Kube, Cache]], list[LLMOpsError]]:
    opened: list[tuple[KubeScope, Kube, Cache]] = []
    troubles: list[LLMOpsError] = []
    for scope in known_scopes(home):
        try:
            kube = open_kube(scope.context)
        except LLMOpsError as error:
            troubles.append(error)
        else:
            opened.append((scope, kube, rayclusters_of(kube, scope.namespace)))
    return opened, troubles


def _named(
    seen: Sequence[tuple[KubeScope, Kube, Cache, Snapshot]], taken: Collection[str], home: Path
) -> tuple[LocatedCluster, ...]:
    counts = Counter(name for *_, snapshot in seen for name in snapshot.items)
    found = []
    for scope, kube, cache, snapshot in seen:
        for own, raycluster in snapshot.items.items():
            is_unique = counts[own] == 1 and own not in taken
            name = own if is_unique else f"{scope}/{own}"
            found.append(
                LocatedCluster(
                    name, scope, kube, raycluster, cache, snapshot.error, snapshot.old_s, home
                )
            )
    return tuple(sorted(found, key=lambda one: one.name))


def _asked(name: str, home: Path) -> list[LocatedCluster]:
    """Return what the watches have not reported yet, or what is in a namespace not looked at."""
    whole = scope_of(name)
    if whole is not None:
        one = fetched(*whole, label=name, home=home)
        return [one] if one is not None else []
    found: dict[KubeScope, LocatedCluster] = {}

    def ask(scope: KubeScope) -> None:
        with suppress(LLMOpsError):
            one = fetched(scope, name, home=home)
            if one is not None:
                found[scope] = one

    scopes = known_scopes(home)
    # Daemon threads: a context that does not answer holds up neither the others nor the exit.
    threads = [threading.Thread(target=ask, args=(scope,), daemon=True) for scope in scopes]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + _ASKED_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    known = dict(found)
    return [known[scope] for scope in scopes if scope in known]
