"""Loads Ray before its job is known: its two per-process values are set in the child.

Ray's core library copies RAY_JOB_ID and RAY_RAYLET_PID from the environment into two C++ strings
while it loads, and offers no way to set them later (`Config.initialize` reads all others again).
Loading it with values that occur nowhere else shows where they are: Ray's wheels are built with
libstdc++'s reference-counted strings, a header of length, capacity and count before the characters.
A shorter value can be written in place. If the two are not found exactly once in exactly this form,
Ray must not be preloaded, and is not.

Ray's generator of random ids must not have been used before a fork, or all children draw the same
ids. Decorating a class with `ray.remote` draws one, so while modules are preloaded Python draws
them instead.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
import sys
from typing import Any

# Longer than any job id (8 characters) or pid (7), so that both fit.
_PROBES = {
    "RAY_JOB_ID": "llmops-probe-of-job-id-0",
    "RAY_RAYLET_PID": "llmops-probe-of-raylet-0",
}
_HEAD = struct.Struct("<QQi4x")  # length, capacity, reference count minus one

_places: dict[str, int] = {}


class NotFoundError(Exception):
    """No process can be forked from Ray as it is built here."""


def load() -> None:
    """Import ray, before any other thread exists.

    Raises NotFoundError: no worker may be forked from this process then.
    """
    before = {name: os.environ.get(name) for name in _PROBES}
    os.environ.update(_PROBES)
    try:
        importlib.import_module("ray")
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    _places.update({name: _find(probe.encode()) for name, probe in _PROBES.items()})
    set_identity({})
    actor = sys.modules["ray.actor"]
    actor.ActorClassID = _ClassIds(actor.ActorClassID)  # type: ignore[attr-defined]


class _ClassIds:
    """Draws the ids of actor classes from the operating system."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def from_random(self) -> Any:
        return self.real(os.urandom(self.real.size()))


def loaded() -> None:
    """Check Ray after the last import.

    Raises NotFoundError if two forks would draw the same ids.
    """
    actor = sys.modules["ray.actor"]
    if isinstance(actor.ActorClassID, _ClassIds):
        actor.ActorClassID = actor.ActorClassID.real  # type: ignore[attr-defined]
    if _drawn_in_fork() == _drawn_in_fork():
        raise NotFoundError("a preloaded module used Ray's generator of random ids")


def _drawn_in_fork() -> bytes:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, sys.modules["ray._raylet"].UniqueID.from_random().binary())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as drawn:
        value = drawn.read()
    os.waitpid(pid, 0)
    return value


def set_identity(env: dict[str, str]) -> None:
    """Set the values as if Ray had been loaded with `env`; no effect if it was not preloaded."""
    if not _places:
        return
    for name, place in _places.items():
        value, limit = env.get(name, "").encode(), len(_PROBES[name])
        if len(value) > limit:
            raise NotFoundError(f"{name} has {len(value)} characters, more than {limit}")
        ctypes.memmove(place + _HEAD.size, value + b"\0", len(value) + 1)
        ctypes.memmove(place, struct.pack("<Q", len(value)), 8)
    sys.modules["ray._raylet"].Config.initialize("")


def _find(probe: bytes) -> int:
    """Return the address of the only unshared C++ string that holds exactly `probe`."""
    addresses = []
    for start, end in _writable():
        memory = ctypes.string_at(start, end - start)
        offset = memory.find(probe + b"\0")
        while offset >= 0:
            head = offset - _HEAD.size
            if head >= 0 and _HEAD.unpack_from(memory, head) == (len(probe), len(probe), 0):
                addresses.append(start + head)
            offset = memory.find(probe + b"\0", offset + 1)
    if len(addresses) != 1:
        raise NotFoundError(f"{probe.decode()} is in Ray's memory {len(addresses)} times, not once")
    return addresses[0]


def _writable() -> list[tuple[int, int]]:
    """Return the heap, where the first thread creates strings of the C++ library."""
    spans = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, mode, *_, name = line.rstrip("\n").split(" ")
            if mode.startswith("rw") and name == "[heap]":
                start, end = (int(part, 16) for part in span.split("-"))
                spans.append((start, end))
    return spans
