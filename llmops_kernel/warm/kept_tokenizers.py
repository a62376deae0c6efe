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
    """What `from_pretrained` gets: a folder, or an id of the hub."""
    revision: str | None
    folder: str
    """Where its files are on this node."""
    user: str
    """Who submitted the run: nothing is kept for another."""
    limit_bytes: int
    """How much memory all that is kept may have."""
    facts: Facts
    """Of all files in the folder, before the run has read them."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.user, self.source, self.revision or "")

    @property
    def num_bytes(self) -> int:
        """Estimate the memory it takes."""
        return _MEMORY * sum(size for name, size, *_ in self.facts if name == _FILE)


@dataclass(kw_only=True)
class _Kept:
    wanted: TokenizerRequest
    tokenizer: Any
    used_s: float
    """Unix time at which a run last asked for it."""


def take(wanted: TokenizerRequest) -> Any:
    """In a fork: return the kept tokenizer, once; None if its files are not what they were."""
    kept = _all().pop(wanted.key, None)
    return kept.tokenizer if kept is not None and kept.wanted.facts == wanted.facts else None


def ask(folder: str, wanted: TokenizerRequest) -> None:
    """Name a tokenizer to the server of a warm folder. No answer is waited for, no error raised."""
    request = marshal.dumps({"kind": "keep", **asdict(wanted)})
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_SEND_S)
        channel.connect(os.path.join(folder, "server.sock"))
        channel.sendall(len(request).to_bytes(4, "big") + request)


def tokenizer_request(request: dict[str, Any]) -> TokenizerRequest:
    """Raises KeyError or TypeError for what is no such request."""
    return TokenizerRequest(**{name: request[name] for name in TokenizerRequest.__annotations__})


def is_kept(wanted: TokenizerRequest) -> bool:
    """In the server: return whether it is kept already, from the same files."""
    kept = _all().get(wanted.key)
    return kept is not None and kept.wanted.facts == wanted.facts


def mark_used(wanted: TokenizerRequest) -> None:
    """In the server: make one that is kept the last to be let go."""
    kept = _all()
    kept[wanted.key] = one = kept.pop(wanted.key)
    one.used_s = time.time()


def can_keep(wanted: TokenizerRequest) -> bool:
    """In the server: return whether the libraries are preloaded and there is memory for it."""
    return (
        {"tokenizers", "transformers"} <= sys.modules.keys()
        and 0 < wanted.num_bytes <= wanted.limit_bytes
        and not is_short(wanted.num_bytes, memory())
    )


def is_harmless(wanted: TokenizerRequest) -> bool:
    """In a child of the server: load it, and return whether the server may."""
    signal.alarm(_TRIAL_S)
    before = _threads(), _packages()
    return _load(wanted) is not None and (_threads(), _packages()) == before


def keep(wanted: TokenizerRequest) -> None:
    """In the server: load it, and let go of what was used least."""
    kept = _all()
    kept.pop(wanted.key, None)
    tokenizer = _load(wanted)
    if tokenizer is None:
        return
    kept[wanted.key] = _Kept(wanted=wanted, tokenizer=tokenizer, used_s=time.time())
    while len(kept) > _MOST or _size() > wanted.limit_bytes:
        del kept[next(iter(kept))]
    _give_back()


def drop_if_short() -> None:
    """Let go of all if memory is short."""
    if _all() and is_short(0, memory()):
        drop()


def drop() -> None:
    """Let go of all. Forks that have them keep them."""
    _all().clear()
    _give_back()


def all_kept() -> list[tuple[str, int, float]]:
    """Return model, bytes and time of last use of each."""
    return [(one.wanted.model, one.wanted.num_bytes, one.used_s) for one in _all().values()]


def _all() -> dict[tuple[str, str, str], _Kept]:
    library = sys.modules.get("tokenizers")
    found: dict[tuple[str, str, str], _Kept] = (
        {} if library is None else library.__dict__.setdefault(_ATTRIBUTE, {})
    )
    return found


def _size() -> int:
    return sum(one.wanted.num_bytes for one in _all().values())


def _load(wanted: TokenizerRequest) -> Any:
    """Return the tokenizer; None if it cannot be loaded, or its files are not what they were."""
    if not _is_same(wanted):
        return None
    try:
        with without_collections(freeze=False):
            found = sys.modules["transformers"].AutoTokenizer.from_pretrained(
                wanted.source, revision=wanted.revision, local_files_only=True
            )
    except Exception:  # Files that the library cannot read raise many unrelated types.
        return None
    return found if _is_same(wanted) else None


def _is_same(wanted: TokenizerRequest) -> bool:
    try:
        return facts_of(wanted.folder) == wanted.facts
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
