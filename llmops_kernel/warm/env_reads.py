"""Records what libraries ask for while the fork server imports them: variables, and modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

# Modules that look at all variables when they load, and the names that they take.
_TAKEN = {"fsspec.config": "FSSPEC_", "tqdm.utils": "TQDM_", "networkx.utils.backends": "NETWORKX_"}
_MAPPINGS = frozenset({"os", "_collections_abc", "collections.abc"})
_WHOLE = frozenset({"__iter__", "copy"})


@dataclass(frozen=True)
class EnvReads:
    """The variables that were read: a fork keeps what was made of them."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    """Modules that iterate over all variables, in search of unknown names."""

    def has(self, name: str) -> bool:
        """Return True if this variable was read, or may have been."""
        return bool(self.strangers) or name in self.names or name.startswith(self.prefixes)

    def as_report(self) -> dict[str, Any]:
        """Return it as plain data, for the server's report."""
        return {key: sorted(value) for key, value in asdict(self).items()}

    @classmethod
    def of_report(cls, report: dict[str, Any]) -> EnvReads:
        """Return what `as_report` has written; nothing for a report without it."""
        return cls(
            names=frozenset(report.get("names", ())),
            prefixes=tuple(report.get("prefixes", ())),
            strangers=tuple(report.get("strangers", ())),
        )


@dataclass
class _Seen:
    names: set[str] = field(default_factory=set)
    iterating: set[str] = field(default_factory=set)


class Recording:
    """A context in which reads of `os.environ` are recorded; libraries keep using the same object.

    Reads by native code (`getenv`) are not seen: `plan` names their families.
    """

    def __init__(self) -> None:
        self._seen = _Seen()
        self._before: Any = None

    def __enter__(self) -> Recording:
        self._before = os.environ._data  # type: ignore[attr-defined]
        os.environ._data = _Recorded(self._before, self._seen)  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        recorded = os.environ._data  # type: ignore[attr-defined]
        # os.environb has this very object.
        self._before.clear()
        self._before.update(dict.items(recorded))
        os.environ._data = self._before  # type: ignore[attr-defined]

    def reads(self) -> EnvReads:
        modules = sorted(self._seen.iterating & _TAKEN.keys())
        return EnvReads(
            names=frozenset(self._seen.names),
            prefixes=tuple(_TAKEN[module] for module in modules),
            strangers=tuple(sorted(self._seen.iterating - _TAKEN.keys())),
        )


class LookedFor:
    """A context in which it is recorded which top-level modules are looked for and not found.

    Many libraries remember whether an optional one is installed.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> LookedFor:
        sys.meta_path.append(self)  # After the others: it is asked for what none of them has.
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Note the name, as a finder that finds nothing."""
        if path is None:
            self.names.add(name)


class _Recorded(dict[bytes, bytes]):
    def __init__(self, values: dict[bytes, bytes], seen: _Seen) -> None:
        super().__init__(values)
        self._seen = seen

    def __getitem__(self, key: bytes) -> bytes:
        # An iteration over all variables is recorded as one, not as a read of each.
        caller = sys._getframe(2)
        if not (caller.f_code.co_name in _WHOLE and _module(caller) in _MAPPINGS):
            self._seen.names.add(os.fsdecode(key))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[bytes]:
        caller: FrameType | None = sys._getframe(1)
        while caller is not None and _module(caller) in _MAPPINGS:
            caller = caller.f_back
        self._seen.iterating.add(_module(caller) if caller is not None else "?")
        return super().__iter__()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))
