"""Where clusters are searched: the current context, and wherever `up` created one."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.kuberay.api import kubeconfig
from llmops_kernel.providers.kuberay.resource import own_clusters
from llmops_kernel.store import paths
from llmops_kernel.store.files import private_folder


@dataclass(frozen=True, order=True)
class KubeScope:
    """A namespace of a Kubernetes cluster."""

    context: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.context}/{self.namespace}"


def is_available() -> bool:
    """Return whether there is a kubeconfig (or a service account) and the client is installed."""
    return kubeconfig.is_there() and importlib.util.find_spec("kubernetes") is not None


def known_scopes(home: Path) -> tuple[KubeScope, ...]:
    """Return the known scopes, the current one first. Without the file only convenience is lost."""
    try:
        config = kubeconfig.read_kubeconfig()
    except LLMOpsError:
        return ()
    found = [KubeScope(*pair) for pair in _read(home) if pair[0] in config.contexts]
    if config.current in config.contexts:
        current = config.contexts[config.current]
        found.insert(0, KubeScope(current.name, current.namespace))
    return tuple(dict.fromkeys(found))


def is_remembered(home: Path, scope: KubeScope) -> bool:
    return (scope.context, scope.namespace) in _read(home)


def may_be_at(home: Path, scope: KubeScope, name: str) -> bool:
    """Return whether this user has used a cluster of that name there and not deleted it."""
    return own_clusters.is_recorded(home, scope.context, scope.namespace, name)


def has_any(home: Path) -> bool:
    return bool(_read(home))


def remember(home: Path, scope: KubeScope) -> None:
    """Add the scope to the file.

    If it cannot be written, nothing fails: the cluster exists anyway.
    """
    known = _read(home)
    pair = (scope.context, scope.namespace)
    if pair in known:
        return
    path = _path(home)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with suppress(OSError):
        private_folder(path.parent)
        part.write_text(json.dumps([list(one) for one in [*known, pair]], indent=1))
        part.replace(path)


def _read(home: Path) -> list[tuple[str, str]]:
    try:
        found = json.loads(_path(home).read_bytes())
    except (OSError, ValueError):
        return []
    pairs = found if isinstance(found, list) else []
    return [(str(pair[0]), str(pair[1])) for pair in pairs if _is_pair(pair)]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)


def _path(home: Path) -> Path:
    return home / "kuberay" / "places.json"


def default_home() -> Path:
    return paths.home().absolute()
