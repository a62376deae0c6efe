"""Sequence numbers of a stream that were read: a stream without gaps costs one number."""

from __future__ import annotations

from collections.abc import Iterable


class SeenNumbers:
    """Sequence numbers from 1 on, in any order."""

    __slots__ = ("_beyond", "_upto")

    def __init__(self, upto: int = 0, beyond: Iterable[int] = ()) -> None:
        self._upto = upto
        self._beyond = set(beyond)

    def add(self, number: int) -> bool:
        """Return False if it was there before."""
        if number == self._upto + 1:
            self._upto = number
            while self._beyond and self._upto + 1 in self._beyond:
                self._upto += 1
                self._beyond.discard(self._upto)
            return True
        if 0 < number <= self._upto or number in self._beyond:
            return False
        self._beyond.add(number)
        return True

    def state(self) -> tuple[int, list[int]]:
        """Return what makes an equal one."""
        return self._upto, sorted(self._beyond)
