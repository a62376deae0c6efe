"""Finds RayClusters in all known places, and gives each a name for people."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.clusters.kuberay.cache import Cache, Obj, Snapshot, rayclusters_of
from llmops_kernel.clusters.kuberay.kube import Kube, KubeError, open_kube
from llmops_kernel.clusters.kuberay.kube_paths import raycluster_path
from llmops_kernel.clusters.kuberay.places import Place, is_remembered, known_places
from llmops_kernel.errors import ClusterNotFoundError, LLMOpsError

_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Found:
    """A RayCluster, where it is, and how sure that is."""

    name: str
    """For people: unique among all clusters that this user knows."""
    place: Place
    kube: Kube
    raycluster: Obj
    cache: Cache
    error: KubeError | None = None
    """Why it may be out of date."""
    old_s: float = 0.0

    @property
    def own_name(self) -> str:
        return str(self.raycluster["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raycluster["metadata"].get("uid", ""))

    @property
    def path(self) -> str:
        return raycluster_path(self.place.namespace, self.own_name)


@dataclass(frozen=True)
class Survey:
    """All clusters of all places, and what is wrong with places that cannot be asked."""

    found: tuple[Found, ...]
    troubles: tuple[LLMOpsError, ...] = ()

    def named(self, name: str) -> list[Found]:
        exact = [one for one in self.found if one.name == name]
        return exact or [one for one in self.found if one.own_name == name]


def survey(home: Path, *, taken: Collection[str] = (), patience_s: float = _PATIENCE_S) -> Survey:
    """`taken` names belong to clusters of other providers: ours of that name are qualified."""
    deadline_s = time.monotonic() + patience_s
    opened, troubles = _opened(home)
    for _, _, cache in opened:
        cache.start()
    seen: list[tuple[Place, Kube, Cache, Snapshot]] = []
    for place, kube, cache in opened:
        try:
            left_s = max(0.05, deadline_s - time.monotonic())
            seen.append((place, kube, cache, cache.look(patience_s=left_s)))
        except KubeError as error:
            # Somebody whose kubeconfig is for other things need not hear of KubeRay.
            if error.reason != "ApiNotFound" or is_remembered(home, place):
                troubles.append(error)
    return Survey(_named(seen, taken), tuple(troubles))


def find(name: str, home: Path, *, taken: Collection[str] = ()) -> Found:
    """By its name, or by `context/namespace/name` wherever it is.

    Raises ClusterNotFoundError, and KubeError when it may be in a place that cannot be asked.
    """
    looked = survey(home, taken=taken)
    found = looked.named(name)
    if not found:
        found = _asked(name, home)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{one.place}/{one.own_name}" for one in found)
        raise ClusterNotFoundError(
            f"{len(found)} clusters have the name {name!r}: {names}",
            remedy="use the whole name of the one that you mean",
        )
    if looked.troubles:
        raise looked.troubles[0]
    known = ", ".join(one.name for one in looked.found) or "none"
    places = ", ".join(map(str, known_places(home))) or "nowhere: there is no kubeconfig"
    raise ClusterNotFoundError(
        f"There is no RayCluster {name!r}; known: {known} (looked in {places})",
        remedy=f"llmops up {name}",
    )


def is_there(name: str, home: Path, *, taken: Collection[str] = ()) -> bool:
    """Raises KubeError when that cannot be known, ClusterNotFoundError for a name of several."""
    looked = survey(home, taken=taken)
    return bool(looked.named(name) or _asked(name, home))


def place_of(name: str) -> tuple[Place, str] | None:
    """Of `context/namespace/name`; contexts have slashes of their own."""
    parts = name.rsplit("/", 2)
    if len(parts) != 3 or not all(parts):
        return None
    return Place(parts[0], parts[1]), parts[2]


def fetched(place: Place, name: str, *, label: str | None = None) -> Found | None:
    """Asked for itself, past the watch; None when it is not there. Raises KubeError."""
    kube = open_kube(place.context)
    cache = rayclusters_of(kube, place.namespace)
    try:
        raycluster = kube.get(raycluster_path(place.namespace, name))
    except KubeError as error:
        if error.code == 404 and error.reason == "NotFound":
            return None
        raise
    cache.put(raycluster)
    return Found(label or name, place, kube, raycluster, cache)


def _opened(home: Path) -> tuple[list[tuple[Place, Kube, Cache]], list[LLMOpsError]]:
    opened: list[tuple[Place, Kube, Cache]] = []
    troubles: list[LLMOpsError] = []
    for place in known_places(home):
        try:
            kube = open_kube(place.context)
        except LLMOpsError as error:
            troubles.append(error)
        else:
            opened.append((place, kube, rayclusters_of(kube, place.namespace)))
    return opened, troubles


def _named(
    seen: Sequence[tuple[Place, Kube, Cache, Snapshot]], taken: Collection[str]
) -> tuple[Found, ...]:
    counts = Counter(name for *_, snapshot in seen for name in snapshot.items)
    found = []
    for place, kube, cache, snapshot in seen:
        for own, raycluster in snapshot.items.items():
            is_unique = counts[own] == 1 and own not in taken
            name = own if is_unique else f"{place}/{own}"
            found.append(
                Found(name, place, kube, raycluster, cache, snapshot.error, snapshot.old_s)
            )
    return tuple(sorted(found, key=lambda one: one.name))


def _asked(name: str, home: Path) -> list[Found]:
    """What the watches have not told yet, or what is in a place nobody has looked at."""
    whole = place_of(name)
    if whole is not None:
        one = fetched(*whole, label=name)
        return [one] if one is not None else []
    found = []
    for place in known_places(home):
        try:
            one = fetched(place, name)
        except LLMOpsError:
            continue
        found += [one] if one is not None else []
    return found
