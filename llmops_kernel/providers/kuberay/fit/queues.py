"""Quotas of Kueue's queues, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    name_of,
    objects,
    quantity,
    short,
    text,
)

_ZERO = Decimal(0)


def local_queue(observation: ClusterObservation) -> Obj | None:
    """Return the LocalQueue that the cluster names; None if it does not exist or was not seen."""
    return next(
        (q for q in observation.local_queues or () if name_of(q) == observation.queue), None
    )


def cluster_queue(observation: ClusterObservation) -> Obj | None:
    name = text(local_queue(observation), "spec", "clusterQueue")
    return next((q for q in observation.cluster_queues or () if name and name_of(q) == name), None)


def nominal(queue: Obj, resource: str) -> Decimal | None:
    """Return the queue's own quota over all flavors; None if it has none for that resource."""
    values = [
        quantity(entry.get("nominalQuota"))
        for group in objects(queue, "spec", "resourceGroups")
        for flavor in objects(group, "flavors")
        for entry in objects(flavor, "resources")
        if entry.get("name") == resource
    ]
    numbers = [value for value in values if value is not None]
    return sum(numbers, _ZERO) if numbers else None


def used(queue: Obj, resource: str) -> Decimal | None:
    """Return what the queue's workloads have reserved; None if the queue does not say."""
    for part in ("flavorsReservation", "flavorsUsage", "flavorUsage"):
        if dig(queue, "status", part) is None:
            continue
        values = [
            quantity(entry.get("total"))
            for flavor in objects(queue, "status", part)
            for entry in objects(flavor, "resources")
            if entry.get("name") == resource
        ]
        return sum((value for value in values if value is not None), _ZERO)
    return None


def cohort(queue: Obj) -> str:
    """Return the group of queues that lend to each other; both spellings of the API."""
    return text(queue, "spec", "cohortName") or text(queue, "spec", "cohort")


def usage_text(observation: ClusterObservation, resource: str) -> str:
    """Return `queue team-a is at 16 of 16`; empty if that is unknown."""
    queue = cluster_queue(observation)
    if queue is None:
        return ""
    total, in_use = nominal(queue, resource), used(queue, resource)
    if total is None or in_use is None:
        return ""
    return f"queue {observation.queue} is at {short(resource, in_use)} of {short(resource, total)}"


def full_queue_text(observation: ClusterObservation, resource: str) -> str:
    """Return the same text, but only for a queue that has nothing left."""
    queue = cluster_queue(observation)
    if queue is None:
        return ""
    total, in_use = nominal(queue, resource), used(queue, resource)
    is_full = total is not None and in_use is not None and in_use >= total
    return usage_text(observation, resource) if is_full else ""


# Quota with what a cohort lends


@dataclass(frozen=True)
class Quota:
    """Amount of one resource that a ClusterQueue can provide from one flavor."""

    group: int
    """Resources of one group come out of the same flavor."""
    flavor: str
    resource: str
    available: Decimal | None
    """Amount available now, including borrowed quota; None if no limit is visible."""
    limit: Decimal | None
    """Amount available when all others have given back."""


@dataclass(frozen=True)
class _Share:
    """Part of a flavor that belongs to one queue."""

    nominal: Decimal
    lends: Decimal
    borrows: Decimal | None
    used: Decimal

    @property
    def kept(self) -> Decimal:
        """Return the quota that is not lent to others."""
        return max(_ZERO, self.nominal - self.lends)


def quotas_of(queue: Obj, queues: Sequence[Obj]) -> list[Quota]:
    """Return each flavor and resource of the queue, with what its cohort would lend."""
    name = cohort(queue)
    peers = [
        peer for peer in queues if name and cohort(peer) == name and name_of(peer) != name_of(queue)
    ]
    quotas = []
    for index, group in enumerate(objects(queue, "spec", "resourceGroups")):
        for flavor in objects(group, "flavors"):
            for entry in objects(flavor, "resources"):
                key = text(flavor, "name"), text(entry, "name")
                share = _share(queue, *key)
                lenders = [lender for peer in peers if (lender := _share(peer, *key)) is not None]
                if share is not None:
                    quotas.append(_quota(index, key, share, lenders, has_cohort=bool(name)))
    return quotas


def _quota(
    group: int, key: tuple[str, str], share: _Share, lenders: list[_Share], *, has_cohort: bool
) -> Quota:
    limit_of_cohort = share.nominal + sum((lender.lends for lender in lenders), _ZERO)
    # What others use beyond what they keep for themselves comes out of the shared pool.
    pot = share.lends + sum(
        (lender.lends - max(_ZERO, lender.used - lender.kept) for lender in lenders), _ZERO
    )
    pot -= max(_ZERO, share.used - share.kept)
    now = max(_ZERO, share.kept - share.used) + pot
    if not has_cohort or share.borrows is not None:
        limit = share.nominal + (share.borrows or _ZERO if has_cohort else _ZERO)
        limit_of_cohort, now = min(limit_of_cohort, limit), min(now, limit - share.used)
    return Quota(group, *key, available=max(_ZERO, now), limit=limit_of_cohort)


def _share(queue: Obj, flavor: str, resource: str) -> _Share | None:
    for group in objects(queue, "spec", "resourceGroups"):
        for flavor_entry in objects(group, "flavors"):
            for entry in objects(flavor_entry, "resources"):
                if (flavor_entry.get("name"), entry.get("name")) != (flavor, resource):
                    continue
                nominal_quota = quantity(entry.get("nominalQuota"))
                if nominal_quota is None:
                    return None
                lends = quantity(entry.get("lendingLimit"))
                return _Share(
                    nominal_quota,
                    nominal_quota if lends is None else min(lends, nominal_quota),
                    quantity(entry.get("borrowingLimit")),
                    _used_of(queue, flavor, resource),
                )
    return None


def _used_of(queue: Obj, flavor: str, resource: str) -> Decimal:
    for flavor_entry in objects(queue, "status", "flavorsReservation"):
        for entry in objects(flavor_entry, "resources"):
            if (flavor_entry.get("name"), entry.get("name")) == (flavor, resource):
                return quantity(entry.get("total")) or _ZERO
    return _ZERO
