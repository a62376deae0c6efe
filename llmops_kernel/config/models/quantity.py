"""Kubernetes quantities (`resource.Quantity`): `8`, `500m`, `32Gi`, `1.5T`, `2e3`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

# The CRD's own pattern, which is that of the Kubernetes API for every quantity.
PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_BINARY: Final = {
    unit: 1024 ** (i + 1) for i, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
}  # fmt: skip
_SPLIT: Final = re.compile(
    r"^([+-]?(?:\d+\.?\d*|\.\d+))((?:[KMGTPE]i)|[numkMGTPE]|(?:[eE][+-]?\d+))?$"
)


def _as_text(value: Any) -> Any:
    """YAML reads `8` and `1.5` as numbers; Kubernetes takes both as quantities."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


Quantity = Annotated[str, BeforeValidator(_as_text), Field(pattern=PATTERN)]
"""A quantity as written; `amount` and `num_bytes` return its value."""


def amount(quantity: str | int | float) -> Decimal:
    """Return the exact value: cores, bytes or a count. Raises ValueError."""
    match = _SPLIT.match(str(quantity).strip())
    if match is None:
        raise ValueError(f"{quantity!r} is not a Kubernetes quantity")
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(_BINARY[unit])
    if unit in _DECIMAL:
        return number * _DECIMAL[unit]
    return number.scaleb(int(unit[1:]))


def num_bytes(quantity: str | int | float) -> int:
    """Return bytes, rounded up as Kubernetes does. Raises ValueError."""
    value = amount(quantity)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
