"""A question about many runs: which, in what order, with which columns."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from llmops_kernel.errors import QueryError
from llmops_kernel.views.run_query import order as ordering
from llmops_kernel.views.run_query.row import Catalogue, Column, Row

_STANDARD = ("state", "progress")
MAX_DIFFERING = 8
"""Columns of differing values that a table shows unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query as a user writes it; empty: all runs, newest first, with the usual columns."""

    where: str = ""
    sort: str = ""
    columns: tuple[str, ...] = ()
    group: str = ""
    hidden: bool = False
    """Whether runs of benchmarks and self-tests are among them."""


@dataclass(frozen=True)
class Selection:
    """The runs that match, in order, and the columns that were named."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    sort: tuple[ordering.Order, ...]
    group: tuple[Column, ...]


def select(rows: Iterable[Row], catalogue: Catalogue, query: Query) -> Selection:
    """Filter and sort; the caller leaves hidden runs out. Raises QueryError."""
    columns = tuple(catalogue.resolve(name.strip()) for name in query.columns if name.strip())
    sort = ordering.orders(query.sort, catalogue)
    group = tuple(each.column for each in ordering.orders(query.group, catalogue))
    matches = condition(query.where, catalogue)
    matching = [row for row in rows if matches(row)]
    return Selection(tuple(ordering.ordered(matching, sort)), columns, sort, group)


def usual_columns(rows: Sequence[Row], catalogue: Catalogue) -> list[Column]:
    """Return state, progress and the listed figures that are known of at least one run."""
    listed = [column for column in catalogue.columns.values() if column.listed]
    with_values = [c for c in listed if any(row.get(c.key) is not None for row in rows)]
    return [*(catalogue.columns[name] for name in _STANDARD), *with_values]


# --- A filter such as `method.r > 8 and eval_loss < 0.4`: parsed once, then asked for each run ---
# Logic has three values: a comparison with an unknown value is unknown, so is its `not`, and only
# what is true matches. Nothing that a run contains can make a condition raise.


# --- Operators of a filter: they never raise ---


R = TypeVar("R")
Operand = Any
"""A value of a row, a constant, or a tuple of those; None is unknown."""


def truth(value: Operand) -> bool | None:
    """Return whether a value counts as true: a column alone is a condition too."""
    if value is None or isinstance(value, bool):
        return value
    return bool(value)


def negated(value: Operand) -> bool | None:
    result = truth(value)
    return None if result is None else not result


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
    """Return `and`: false if one is, else unknown if one is."""
    result: bool | None = True
    for value in values:
        fact = truth(value)
        if fact is False:
            return False
        if fact is None:
            result = None
    return result


def any_of(values: Iterable[Operand]) -> bool | None:
    """Return `or`: true if one is, else unknown if one is."""
    result: bool | None = False
    for value in values:
        fact = truth(value)
        if fact is True:
            return True
        if fact is None:
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
    """Return whether two values are equal; texts whatever their case, as lists show several."""
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
    is_equal = equal(left, right)
    return None if is_equal is None else not is_equal


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
    """Return membership: `'lora' in name`, `'best' in tags`, `method.r in (8, 16)`."""
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
    """Return whether `x == none`."""
    return left is None and right is None


def is_known(left: Operand, right: Operand) -> bool:
    """Return whether `x != none`."""
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


# --- Dates as users write them in a filter ---


def seconds_of(text: str) -> float | None:
    """Return the Unix time of `2026-11-23` or `2026-11-23 14:30`, local unless it names a zone."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


MAX_LENGTH = 2_000
_MAX_DEPTH = 60
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_GRAMMAR = "use columns, numbers, 'texts', == != < <= > >= in, and or not, + - * /"
_EXAMPLE = f"{_GRAMMAR}; for example: method.r > 8 and 'menu' in name"
_WORDS = re.compile(r"\b(contains|like|matches|includes|startswith|is)\b", re.IGNORECASE)

Test = Callable[[Row], bool]
Read = Callable[[Row], Operand]


def condition(text: str, catalogue: Catalogue) -> Test:
    """Return a function that says whether a run matches; all runs match an empty text.

    Raises QueryError with the position of what is wrong.
    """
    if not text.strip():
        return lambda row: True
    read = _Compiler(text, catalogue).compile(_parsed(text))
    return lambda row: truth(read(row)) is True


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        message = f"The filter has {len(text):,} characters; at most {MAX_LENGTH:,} are accepted."
        raise QueryError(message, remedy="shorten it")
    # As the text of one expression: a line end inside would otherwise end it.
    line = text.replace("\n", " ").replace("\r", " ")
    indent = len(line) - len(line.lstrip())
    try:
        return ast.parse(line.lstrip(), mode="eval").body
    except SyntaxError as error:
        position = None if error.offset is None else indent + max(0, error.offset - 1)
        raise _wrong_syntax(text, position) from None
    except (ValueError, RecursionError, MemoryError):
        raise QueryError("The filter cannot be read.", remedy=_EXAMPLE) from None


def _wrong_syntax(text: str, position: int | None) -> QueryError:
    remedy = _EXAMPLE
    for wrong, right in (("&&", "and"), ("||", "or"), ("!", "not")):
        index = text.find(wrong)
        if index >= 0 and text[index : index + 2] != "!=":
            remedy, position = f"write `{right}` instead of `{wrong}`", index
            break
    else:
        if (word := _WORDS.search(text)) is not None:
            remedy = f"write `'text' in column` or `==` instead of `{word[0]}`; {_GRAMMAR}"
        elif any(text[i] == "=" and _is_single(text, i) for i in range(len(text))):
            remedy = "write `==` to compare: state == 'failed'"
    place = "" if position is None else f" at character {min(position, len(text)) + 1}"
    return located(QueryError(f"The filter cannot be read{place}.", remedy=remedy), position)


def _is_single(text: str, position: int) -> bool:
    return (
        text[position - 1 : position] not in ("=", "!", "<", ">")
        and text[position + 1 : position + 2] != "="
    )


def located(error: QueryError, position: int | None) -> QueryError:
    error.position = position
    return error


class _Compiler:
    """Turns the few kinds of node that a filter may have into functions of a row."""

    def __init__(self, text: str, catalogue: Catalogue) -> None:
        self._text, self._catalogue = text, catalogue
        self._indent = len(text) - len(text.lstrip())
        self._depth = 0

    def compile(self, node: ast.expr) -> Read:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise QueryError("The filter is nested too deeply.", remedy="use fewer parentheses")
        try:
            return self._compile(node)
        finally:
            self._depth -= 1

    def _compile(self, node: ast.expr) -> Read:
        if isinstance(node, ast.BoolOp):
            parts = [self.compile(value) for value in node.values]
            if isinstance(node.op, ast.And):
                return every(parts)
            return lambda row: any_of(part(row) for part in parts)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = tuple(self.compile(item) for item in node.elts)
            return lambda row: tuple(item(row) for item in items)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        column = self._column(node)
        if column is None:
            constant = _CONSTANTS[node.id.lower()] if isinstance(node, ast.Name) else None
            return lambda row: constant
        key = column.key
        return lambda row: row.get(key)

    def _unary(self, node: ast.UnaryOp) -> Read:
        inner = self.compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda row: negated(inner(row))
        if isinstance(node.op, ast.USub):
            return lambda row: calculated("-", 0, inner(row))
        raise self._refused(node)

    def _arithmetic(self, node: ast.BinOp) -> Read:
        signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
        sign = signs.get(type(node.op))
        if sign is None:
            raise self._refused(node)
        left, right = self.compile(node.left), self.compile(node.right)
        return lambda row: calculated(sign, left(row), right(row))

    def _compare(self, node: ast.Compare) -> Read:
        nodes = [node.left, *node.comparators]
        sides = self._sides(nodes)
        steps = []
        for number, op in enumerate(node.ops):
            test = COMPARISONS.get(type(op))
            if test is None:
                raise self._refused(node)
            # `x == none` asks whether x is unknown; any other comparison with None is unknown.
            if self._is_none(nodes[number + 1]) or self._is_none(nodes[number]):
                test = KNOWN.get(type(op), test)
            steps.append((test, sides[number], sides[number + 1]))
        if len(steps) == 1:
            only, left, right = steps[0]
            return lambda row: only(left(row), right(row))
        return lambda row: all_of(test(a(row), b(row)) for test, a, b in steps)

    def _sides(self, nodes: list[ast.expr]) -> list[Read]:
        """Compile them; a text beside a time column is a date."""
        is_time = any((column := self._known(node)) and column.type == "time" for node in nodes)
        return [
            self._date(node)
            if is_time and isinstance(node, ast.Constant) and isinstance(node.value, str)
            else self.compile(node)
            for node in nodes
        ]

    def _date(self, node: ast.Constant) -> Read:
        moment = seconds_of(str(node.value))
        if moment is None:
            error = QueryError(
                f"{node.value!r} is not a date.",
                remedy='write it as "2026-11-23" or "2026-11-23 14:30"',
            )
            raise located(error, self._at(node))
        return lambda row: moment

    def _constant(self, node: ast.Constant) -> Read:
        value = node.value
        if value is not None and not isinstance(value, str | int | float):
            raise self._refused(node)
        constant: Operand = value
        return lambda row: constant

    def _is_none(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Constant):
            return node.value is None
        is_word = isinstance(node, ast.Name) and _CONSTANTS.get(node.id.lower(), "") is None
        return is_word and self._known(node) is None

    # Columns

    def _column(self, node: ast.expr) -> Column | None:
        """Return the column of a name; None for a word such as `true`. Raises QueryError."""
        name = _name(node)
        if name is None:
            raise self._refused(node)
        try:
            return self._catalogue.resolve(name)
        except QueryError as error:
            if isinstance(node, ast.Name) and node.id.lower() in _CONSTANTS:
                return None
            raise located(error, self._at(node)) from None

    def _known(self, node: ast.expr) -> Column | None:
        name = _name(node)
        try:
            return None if name is None else self._catalogue.resolve(name)
        except QueryError:
            return None

    def _refused(self, node: ast.expr) -> QueryError:
        part = ast.get_source_segment(self._text.lstrip(), node) or "this"
        part = part if len(part) <= 60 else f"{part[:60]}…"
        error = QueryError(
            f"A filter cannot contain `{part}`.",
            remedy=_GRAMMAR,
        )
        return located(error, self._at(node))

    def _at(self, node: ast.expr) -> int:
        """Return the character at which a node begins; the parser counts bytes."""
        line = self._text.lstrip().replace("\n", " ").replace("\r", " ")
        return self._indent + len(line.encode()[: node.col_offset].decode(errors="replace"))


def _name(node: ast.expr) -> str | None:
    """Return `a.b[0]["c d"]` as the name of a column; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _name(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner, part = _name(node.value), node.slice.value
        if inner is not None and isinstance(part, int) and not isinstance(part, bool):
            return f"{inner}[{part}]"
        if inner is not None and isinstance(part, str):
            return part if inner == "column" else f"{inner}.{part}"
    return None
