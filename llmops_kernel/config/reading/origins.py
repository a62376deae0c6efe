"""Records where each value of a config was written."""

from __future__ import annotations

from dataclasses import dataclass, field

Path = tuple[str, ...]
"""Keys from the top: `("optimizer", "learning_rate")`."""


@dataclass(frozen=True)
class Origin:
    file: str | None = None
    """The file, or the override, as the user gave it."""
    line: int | None = None
    text: str | None = None
    """A plain scalar as it was written, without quotes."""


@dataclass
class Origins:
    """File, line and text by path; a path that was not written has its parent's line."""

    file: str | None = None
    _known: dict[Path, Origin] = field(default_factory=dict)

    def put(self, path: Path, origin: Origin) -> None:
        """Set an origin; it replaces those of the path and all below it."""
        for known in [known for known in self._known if known[: len(path)] == path]:
            del self._known[known]
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
