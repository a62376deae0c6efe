"""Tokenizers that the fork server has loaded: its forks have them already.

A tokenizer of 150,000 tokens takes 0.5 to 0.8 s to load, in each run. A run that had to load one
names it to the server. A child of the server tries first: what fails, hangs or starts a thread
there does not happen in the server.
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from llmops_kernel.hardware.load import memory
from llmops_kernel.warm.loaded_files import Facts, facts_of
from llmops_kernel.warm.preload import without_collections

_ATTRIBUTE = "llmops_kept"  # Of the module `tokenizers`: a fork forgets this package's modules.
_FILE = "tokenizer.json"
_MEMORY = 13
"""Bytes of memory for a byte of the file: 13 for SmolLM2's, 12 for one of 151,000 tokens."""
_MOST = 4
_TRIAL_S = 3  # The server does not answer while it loads, and a launcher waits for 4 s.
_LEAST_FREE = 0.05
_SEND_S = 0.5


@dataclass(frozen=True, kw_only=True)
class TokenizerRequest:
    """A tokenizer, as a run loads it."""

    model: str
    """As the config names it."""
    source: str
    """Argument of `from_pretrained`: a folder, or an id of the hub."""
    revision: str | None
    folder: str
    """Folder of its files on this node."""
    user: str
    """The user who submitted the run: nothing is kept for another."""
    limit_bytes: int
    """Memory that all kept tokenizers may have."""
    facts: Facts
    """Facts of all files in the folder, before the run has read them."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.user, self.source, self.revision or "")

    @property
    def num_bytes(self) -> int:
        """Estimate the memory it takes."""
        return _MEMORY * sum(size for name, size, *_ in self.facts if name == _FILE)


@dataclass(kw_only=True)
class _Entry:
    """A fork with another version of this package reads it: its fields keep their names."""

    wanted: TokenizerRequest
    tokenizer: Any
    used_s: float
    """Unix time at which a run last asked for it."""


def take(request: TokenizerRequest) -> Any:
    """Return the kept tokenizer in a fork, once; None if its files are not what they were."""
    entry = _all().pop(request.key, None)
    return entry.tokenizer if entry is not None and entry.wanted.facts == request.facts else None


def ask(folder: str, request: TokenizerRequest) -> None:
    """Name a tokenizer to the server of a warm folder. No answer is waited for, no error raised."""
    message = marshal.dumps({"kind": "keep", **asdict(request)})
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_SEND_S)
        channel.connect(os.path.join(folder, "server.sock"))
        channel.sendall(len(message).to_bytes(4, "big") + message)


def tokenizer_request(fields: dict[str, Any]) -> TokenizerRequest:
    """Build a request. Raises KeyError or TypeError for what is none."""
    return TokenizerRequest(**{name: fields[name] for name in TokenizerRequest.__annotations__})


def is_cached(request: TokenizerRequest) -> bool:
    """Return whether it is kept already, from the same files; called in the server."""
    entry = _all().get(request.key)
    return entry is not None and entry.wanted.facts == request.facts


def mark_used(request: TokenizerRequest) -> None:
    """Make a kept tokenizer the last to be removed; called in the server."""
    cache = _all()
    cache[request.key] = entry = cache.pop(request.key)
    entry.used_s = time.time()


def can_add(request: TokenizerRequest) -> bool:
    """Return whether libraries are preloaded and there is memory for it; called in the server."""
    return (
        {"tokenizers", "transformers"} <= sys.modules.keys()
        and 0 < request.num_bytes <= request.limit_bytes
        and not is_short(request.num_bytes, memory())
    )


def is_harmless(request: TokenizerRequest) -> bool:
    """Load it in a child of the server, and return whether the server may."""
    signal.alarm(_TRIAL_S)
    before = _threads(), _packages()
    return _load(request) is not None and (_threads(), _packages()) == before


def add(request: TokenizerRequest) -> None:
    """Load it, and remove what was used least; called in the server."""
    cache = _all()
    cache.pop(request.key, None)
    tokenizer = _load(request)
    if tokenizer is None:
        return
    cache[request.key] = _Entry(wanted=request, tokenizer=tokenizer, used_s=time.time())
    while len(cache) > _MOST or _size() > request.limit_bytes:
        del cache[next(iter(cache))]
    _give_back()


def drop_if_short() -> None:
    """Let go of all if memory is short."""
    if _all() and is_short(0, memory()):
        drop()


def drop() -> None:
    """Let go of all. Forks that have them keep them."""
    _all().clear()
    _give_back()


def entries() -> list[tuple[str, int, float]]:
    """Return model, bytes and time of last use of each."""
    return [(entry.wanted.model, entry.wanted.num_bytes, entry.used_s) for entry in _all().values()]


def _all() -> dict[tuple[str, str, str], _Entry]:
    library = sys.modules.get("tokenizers")
    cache: dict[tuple[str, str, str], _Entry] = (
        {} if library is None else library.__dict__.setdefault(_ATTRIBUTE, {})
    )
    return cache


def _size() -> int:
    return sum(entry.wanted.num_bytes for entry in _all().values())


def _load(request: TokenizerRequest) -> Any:
    """Return the tokenizer; None if it cannot be loaded, or its files are not what they were."""
    if not _is_same(request):
        return None
    try:
        with without_collections(freeze=False):
            tokenizer = sys.modules["transformers"].AutoTokenizer.from_pretrained(
                request.source, revision=request.revision, local_files_only=True
            )
    except Exception:  # Files that the library cannot read raise many unrelated types.
        return None
    return tokenizer if _is_same(request) else None


def _is_same(request: TokenizerRequest) -> bool:
    try:
        return facts_of(request.folder) == request.facts
    except OSError:
        return False


def _give_back() -> None:
    """Give freed memory back to the system, which the C library does not do of many short texts."""
    gc.collect()  # What was preloaded is frozen, so this looks at little.
    with suppress(AttributeError, OSError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)


def _packages() -> set[str]:
    """Return what a job's own files must not replace (`plan.Base.loaded`)."""
    return {name.partition(".")[0] for name in sys.modules}


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def is_short(num_bytes: int, memory: Iterable[tuple[int, int]]) -> bool:
    """Return whether less than a twentieth of some memory (free, total) would be left."""
    return any(free - num_bytes < _LEAST_FREE * total for free, total in memory)
