"""One line of the doctor's report: what was looked at, how it is, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

IN_CLONE = (Path(__file__).parents[3] / "constraints.txt").is_file()
REINSTALL = "make install" if IN_CLONE else 'pip install "llmops-kernel[train,lab]"'


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    level: Level
    seen: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        line = f"{self.level:<4} {self.name:<14} {self.seen}"
        return f"{line}\n{'':<20}Try: {self.remedy}" if self.remedy else line


Check = Callable[[], Finding]


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Level.OK, seen)


def warn(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.WARN, seen, remedy)


def fail(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.FAIL, seen, remedy)


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
