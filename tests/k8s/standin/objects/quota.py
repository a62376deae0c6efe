"""Resource quotas: what counts, what is refused, what their status says."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from tests.k8s.standin.objects.errors import forbidden, qualified
from tests.k8s.standin.objects.kinds import POD, QUOTA, Kind, Registry
from tests.k8s.standin.objects.store import Snapshot, Store
from tests.k8s.standin.objects.writes import Request

Body = dict[str, Any]
Amounts = dict[str, Decimal]
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(text: object) -> Decimal:
    """A quantity's value."""
    text = str(text).strip()
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * 1024 ** _BINARY[text[-2:]]
        if text[-1:] in _DECIMAL:
            return Decimal(text[:-1]) * Decimal(10) ** _DECIMAL[text[-1:]]
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text} is no quantity") from error


def shown(value: Decimal, like: str) -> str:
    """A quantity's usual spelling, in the family of units of `like`."""
    if like.endswith("i"):
        for unit, power in reversed(_BINARY.items()):
            if value and value % 1024**power == 0:
                return f"{int(value // 1024**power)}{unit}"
    if value != int(value):
        return f"{int(value * 1000)}m"
    return str(int(value))


class Quotas:
    """Looks at the quotas of a namespace; counts afresh each time."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store, self.registry = store, registry

    def admit(self, request: Request, body: Body) -> None:
        """Refuses what would go over a quota."""
        for quota in self.store.list(QUOTA, request.namespace) if request.namespace else ():
            hard = quota.body.get("spec", {}).get("hard") or {}
            asked = {k: v for k, v in _counted(request.kind, body).items() if k in hard and v}
            if request.kind is POD:
                self._complete(request, body, quota, hard)
            if not asked:
                continue
            used = self.used(request.namespace, hard)
            over = [key for key in sorted(asked) if used[key] + asked[key] > amount(hard[key])]
            if over:
                raise self._exceeded(request, body, quota, over, asked, used)

    def _exceeded(
        self,
        request: Request,
        body: Body,
        quota: Snapshot,
        over: list[str],
        asked: Amounts,
        used: Amounts,
    ) -> Exception:
        hard = quota.body["spec"]["hard"]

        def listed(values: dict[str, Any]) -> str:
            return ",".join(f"{key}={shown(amount(values[key]), str(hard[key]))}" for key in over)

        detail = (
            f"exceeded quota: {quota.key[1]}, requested: {listed(asked)}, used: {listed(used)}, "
            f"limited: {listed(hard)}"
        )
        kind = request.kind
        return forbidden(kind.group, kind.plural, body["metadata"]["name"], detail)

    def _complete(self, request: Request, body: Body, quota: Snapshot, hard: Body) -> None:
        """A pod must state what a quota limits."""
        for container in body["spec"]["containers"]:
            stated = _of_container(container)
            keys = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
            named = {key.removeprefix("requests.") for key in keys} | set(keys)
            missing = [k for k in sorted(hard) if k in named and k not in stated]
            if missing:
                detail = (
                    f"failed quota: {quota.key[1]}: must specify {','.join(missing)} for: "
                    f"{container['name']}"
                )
                raise forbidden("", "pods", body["metadata"]["name"], detail)

    def used(self, namespace: str, hard: Body) -> Amounts:
        total: Amounts = {key: Decimal(0) for key in hard}
        for kind in self.registry.kinds:
            if not kind.namespaced:
                continue
            for item in self.store.list(kind, namespace):
                if kind is POD and _ended(item.body):
                    continue
                for key, value in _counted(kind, item.body).items():
                    if key in total:
                        total[key] += value
        return total

    def status(self, quota: Snapshot) -> Body:
        hard = quota.body.get("spec", {}).get("hard") or {}
        used = self.used(quota.key[0], hard)
        return {
            "hard": {key: str(value) for key, value in hard.items()},
            "used": {key: shown(used[key], str(value)) for key, value in hard.items()},
        }


def _ended(body: Body) -> bool:
    return body.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _counted(kind: Kind, body: Body) -> Amounts:
    """What one object counts for."""
    counted = {f"count/{qualified(kind.group, kind.plural)}": Decimal(1)}
    if not kind.group:
        counted[kind.plural] = Decimal(1)
    if kind is POD:
        for container in body["spec"].get("containers") or ():
            for key, value in _of_container(container).items():
                counted[key] = counted.get(key, Decimal(0)) + value
    if kind.plural == "persistentvolumeclaims":
        requests = body.get("spec", {}).get("resources", {}).get("requests", {})
        counted["requests.storage"] = amount(requests.get("storage", 0))
    return counted


def _of_container(container: Body) -> Amounts:
    found: Amounts = {}
    for part, amounts in (container.get("resources") or {}).items():
        if part not in ("requests", "limits"):
            continue
        for key, value in amounts.items():
            found[f"{part}.{key}"] = amount(value)
            if part == "requests" and key in ("cpu", "memory", "ephemeral-storage"):
                found[key] = amount(value)
    return found
