"""What the operators of a filter do with any two values: they never raise."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")
Operand = Any
"""A value of a row, a constant, or a tuple of those; None is unknown."""


def truth(value: Operand) -> bool | None:
    """Return whether a value counts as true: a column alone is a condition too."""
    if value is None or isinstance(value, bool):
        return value
    return bool(value)


def negated(value: Operand) -> bool | None:
    known = truth(value)
    return None if known is None else not known


def both(left: Callable[[R], Operand], right: Callable[[R], Operand]) -> Callable[[R], bool | None]:
    """Return `and` of two functions of a row; the second is asked unless the first is false."""

    def read(row: R) -> bool | None:
        first = left(row)
        if first is False or truth(first) is False:
            return False
        second = truth(right(row))
        return second if second is False or first is not None else None

    return read


def every(parts: Sequence[Callable[[R], Operand]]) -> Callable[[R], Operand]:
    """Return `and` of one or more; hundreds of them are not nested hundreds deep."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return both(every(parts[:half]), every(parts[half:]))


def all_of(values: Iterable[Operand]) -> bool | None:
    """`and`: false if one is, else unknown if one is."""
    result: bool | None = True
    for value in values:
        known = truth(value)
        if known is False:
            return False
        if known is None:
            result = None
    return result


def any_of(values: Iterable[Operand]) -> bool | None:
    """`or`: true if one is, else unknown if one is."""
    result: bool | None = False
    for value in values:
        known = truth(value)
        if known is True:
            return True
        if known is None:
            result = None
    return result


_NUMBERS = frozenset({int, float})
_CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def calculated(sign: str, left: Operand, right: Operand) -> float | None:
    """Return the number; None unless both are numbers and the result is one."""
    if not (is_number(left) and is_number(right)):
        return None
    try:
        value = float(_CALCULATE[sign](left, right))
    except (ArithmeticError, ValueError):
        return None
    return value if value - value == 0 else None  # Neither infinite nor NaN.


def is_number(value: Operand) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(left: Operand, right: Operand) -> bool | None:
    """Texts are equal whatever their case: lists show states and names in more than one."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right or left.casefold() == right.casefold()
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def different(left: Operand, right: Operand) -> bool | None:
    same = equal(left, right)
    return None if same is None else not same


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Operand, Operand], bool | None]:
    def ordered(left: Operand, right: Operand) -> bool | None:
        # Asked for every run: the types of nearly all values are compared first, which is faster.
        are_usual = type(left) in _NUMBERS and type(right) in _NUMBERS
        if are_usual or (is_number(left) and is_number(right)):
            return compare(left, right)
        if isinstance(left, str) and isinstance(right, str):
            return compare(left.casefold(), right.casefold())
        return None

    return ordered


def within(left: Operand, right: Operand) -> bool | None:
    """`'lora' in name`, `'best' in tags`, `method.r in (8, 16)`."""
    if left is None or right is None:
        return None
    if isinstance(right, str):
        return left.casefold() in right.casefold() if isinstance(left, str) else None
    if isinstance(right, tuple):
        return any_of(equal(left, item) for item in right)
    return None


def without(left: Operand, right: Operand) -> bool | None:
    return negated(within(left, right))


def is_unknown(left: Operand, right: Operand) -> bool:
    """`x == none`."""
    return left is None and right is None


def is_known(left: Operand, right: Operand) -> bool:
    """`x != none`."""
    return not is_unknown(left, right)


COMPARISONS: dict[type[ast.cmpop], Callable[[Operand, Operand], bool | None]] = {
    ast.Eq: equal,
    ast.NotEq: different,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: within,
    ast.NotIn: without,
    ast.Is: equal,
    ast.IsNot: different,
}
KNOWN: dict[type[ast.cmpop], Callable[[Operand, Operand], bool | None]] = {
    ast.Eq: is_unknown,
    ast.NotEq: is_known,
    ast.Is: is_unknown,
    ast.IsNot: is_known,
}
"""Instead of those, where one side is written as `none`."""
