"""The mistakes in a user's file: where, what was given, and what would work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

from llmops_kernel.errors import ConfigError


class _Absent:
    """The type of `ABSENT`: a problem may be about a value that is not there."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # one object in every process, so that `is` keeps working


ABSENT: Final = _Absent()
Path = tuple[str, ...]
"""Keys from the top: `("optimizer", "learning_rate")`."""
OVERRIDE: Final = "override "
"""Begins the name of the file of what an override says."""
_SHOWN_CHARACTERS = 60
MOST_SUGGESTED, MOST_UNKNOWN = 20, 100
"""Unknown names with a suggestion, which takes milliseconds, and unknown names that are listed: a
file of another kind may have thousands."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A mistake; `str()` is the line a user reads."""

    path: str
    """Dotted path of the field, such as `optimizer.learning_rate`; empty for a whole file."""
    message: str
    """The mistake, without the value."""
    value: Any = ABSENT
    suggestion: str = ""
    """A value or a step that would work."""
    file: str | None = None
    """The file as the user named it, or the override as it was given."""
    line: int | None = None
    """Line (of a data file: row) counted from 1."""
    text: str | None = None
    """The value as it was written, where that is known."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (where, self.path, self.message) if part]
        shown = f" (value {self.shown})" if self.shown else ""
        suggestion = f"; {self.suggestion}" if self.suggestion else ""
        return ": ".join(parts) + shown + suggestion

    @property
    def shown(self) -> str:
        """Return the value in one short line; empty if there is none."""
        if self.value is ABSENT:
            return ""
        text = " ".join((self.text or _plain(self.value)).split())
        return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for `--json` and the REST routes."""
        return {
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "message": self.message,
            "value": self.shown or None,
            "suggestion": self.suggestion,
        }


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) and value.strip() else repr(value)


# --- Where it was written ---


@dataclass(frozen=True)
class Origin:
    file: str | None = None
    """The file, or the override, as the user gave it."""
    line: int | None = None
    text: str | None = None
    """A plain scalar as it was written, without quotes."""

    @property
    def is_override(self) -> bool:
        return (self.file or "").startswith(OVERRIDE)


@dataclass
class Origins:
    """File, line and text by path; a path that was not written has its parent's line."""

    file: str | None = None
    _known: dict[Path, Origin] = field(default_factory=dict)

    def put(self, path: Path, origin: Origin) -> None:
        """Set an origin; it replaces those of the path and all below it."""
        for known in [known for known in self._known if known[: len(path)] == path]:
            del self._known[known]
        for depth in range(1, len(path)):
            above = self._known.get(path[:depth])
            if above is not None and above.text is not None:  # no longer what is there
                self._known[path[:depth]] = replace(above, text=None)
        self._known[path] = origin

    def add(self, path: Path, origin: Origin) -> None:
        """Like `put`, for a path that is known to be new."""
        self._known[path] = origin

    def copy(self, path: Path, other: Path) -> None:
        """Set the origin of `other` to that of `path`, unless it has one."""
        if path in self._known:
            self._known.setdefault(other, self._known[path])

    def of(self, path: Path) -> Origin:
        """Return the origin of the path, else of its nearest parent (without the parent's text)."""
        if path in self._known:
            return self._known[path]
        for depth in range(len(path) - 1, 0, -1):
            if path[:depth] in self._known:
                parent = self._known[path[:depth]]
                return Origin(parent.file, parent.line)
        return Origin(self.file)

    def text(self, path: Path) -> str | None:
        """Return the scalar as written at exactly this path."""
        origin = self._known.get(path)
        return origin.text if origin else None

    def problem(self, path: Path, message: str, *, value: Any = ABSENT, hint: str = "") -> Problem:
        """Return a problem with the file and line where `path` was written."""
        origin = self.of(path)
        return Problem(
            path=".".join(path),
            message=message,
            value=value,
            suggestion=hint,
            file=origin.file,
            line=origin.line,
            text=None if value is None else origin.text,
        )


# --- Suggestions ---


def closest(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the candidate that was most likely meant, ignoring letter case and `-`."""
    known = {candidate.lower().replace("-", "_"): candidate for candidate in candidates}
    matches = get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=cutoff)
    return known[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `did you mean x?`, or an empty text if no candidate is close."""
    match = closest(name, candidates, cutoff=cutoff)
    return f"did you mean {match}?" if match else ""


def no_such_file(path: str, value: str, folder: object, candidates: Iterable[str]) -> Problem:
    """Return the problem of a field that names a file which is not below the folder."""
    return Problem(
        path=path,
        message=f"no such file below {folder}",
        value=value,
        suggestion=did_you_mean(value, candidates),
    )


def column_name(name: object) -> str:
    """Return a column's name as a sentence has it: quoted where blanks would mislead."""
    text = str(name)
    return text if text and not re.search(r"\s", text) else json.dumps(text, ensure_ascii=False)


def listed(names: Iterable[str], *, limit: int = 8) -> str:
    """Return `a, b, c`, shortened, with the number that was left out."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


# --- Errors with all problems ---


def config_error(problems: Sequence[Problem], *, remedy: str = "") -> ConfigError:
    """Return one error with every problem, one line each, in the order of the file."""
    in_order = ordered(problems)
    error = ConfigError("\n".join(map(str, in_order)), remedy=remedy)
    error.problems = tuple(in_order)
    return error


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems in the order of the file."""
    return sorted(problems, key=lambda problem: problem.line or 0)


def unique(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield each line once: two checks may report the same mistake."""
    seen: set[str] = set()
    for problem in problems:
        if str(problem) not in seen:
            seen.add(str(problem))
            yield problem
