"""Sums of Kubernetes quantities in the spelling that Kubernetes gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from llmops_kernel.config.models.quantity import amount

_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL = {"E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3}


def canonical(value: Decimal, *, is_binary: bool) -> str:
    """The shortest whole number with a unit, as `resource.Quantity` prints itself."""
    if value != value.to_integral_value():
        return f"{int((value * 1000).to_integral_value(rounding='ROUND_CEILING'))}m"
    whole = int(value)
    if whole == 0:
        return "0"
    if is_binary:
        for i, unit in enumerate(_BINARY):
            size = 1024 ** (len(_BINARY) - i)
            if whole % size == 0:
                return f"{whole // size}{unit}"
        return str(whole)
    for unit, power in _DECIMAL.items():
        if whole % 10**power == 0:
            return f"{whole // 10**power}{unit}"
    return str(whole)


def total(quantities: Iterable[Any]) -> str:
    """Their sum; binary when the first that is not 0 is."""
    value, is_binary = Decimal(0), False
    for quantity in map(str, quantities):
        if value == 0:
            is_binary = quantity.endswith("i")
        value += amount(quantity)
    return canonical(value, is_binary=is_binary)


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a scheduler counts: the sum of the containers, or one init container that is bigger."""
    sums: dict[str, Decimal] = {}
    for container in spec.get("containers", []):
        for name, quantity in container_requests(container).items():
            sums[name] = sums.get(name, Decimal(0)) + quantity
    for container in spec.get("initContainers", []):
        for name, quantity in container_requests(container).items():
            sums[name] = max(sums.get(name, Decimal(0)), quantity)
    return sums


def container_requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    merged = dict(resources.get("limits") or {}) | dict(resources.get("requests") or {})
    return {name: amount(quantity) for name, quantity in merged.items()}
