"""The Kubernetes API servers that this user knows. Asks no server and needs no client library."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llmops_kernel.providers.kuberay.api.errors import KubeError
from llmops_kernel.providers.kuberay.api.paths import IN_CLUSTER

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Context:
    """A cluster and the user that accesses it."""

    name: str
    cluster: str = ""
    user: str = ""
    namespace: str = "default"


@dataclass(frozen=True)
class Kubeconfig:
    """The content of the kubeconfig files; empty where there are none."""

    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None
    stamp: tuple[Any, ...] = ()
    """Changes when the files change."""


def files() -> tuple[Path, ...]:
    """Return the files that exist, in the order that kubectl uses."""
    variable = os.environ.get("KUBECONFIG")
    parts = variable.split(os.pathsep) if variable else ["~/.kube/config"]
    paths = (Path(part).expanduser() for part in parts if part)
    return tuple(path for path in paths if path.is_file())


def is_in_cluster() -> bool:
    """Return whether a service account is mounted, so that this process runs in a pod."""
    has_host = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return has_host and (SERVICE_ACCOUNT / "token").is_file()


def is_there() -> bool:
    """Return whether this user has any Kubernetes access configured. Cheap."""
    return bool(files()) or is_in_cluster()


def is_available() -> bool:
    """Return whether there is such access, and the client library is installed."""
    return is_there() and importlib.util.find_spec("kubernetes") is not None


_read: dict[tuple[Any, ...], Kubeconfig] = {}


def read_kubeconfig() -> Kubeconfig:
    """Return the merged files, parsed again only if changed.

    Raises KubeError for unreadable files.
    """
    paths = files()
    stamp = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths)
    if stamp not in _read:
        _read.clear()
        _read[stamp] = _merged(paths, stamp)
    return _read[stamp]


def _merged(paths: tuple[Path, ...], stamp: tuple[Any, ...]) -> Kubeconfig:
    """Merge the files: the first one that sets a value wins, as with kubectl."""
    contexts: dict[str, Context] = {}
    current: str | None = None
    for path in paths:
        data = _parsed(path)
        current = current or data.get("current-context") or None
        for entry in data.get("contexts") or []:
            context = _context(entry)
            contexts.setdefault(context.name, context)
    if not contexts and is_in_cluster():
        contexts = {IN_CLUSTER: _own_context()}
        current = IN_CLUSTER
    return Kubeconfig(contexts=contexts, current=current, stamp=stamp)


def _own_context() -> Context:
    try:
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return Context(name=IN_CLUSTER, namespace=namespace or "default")


def _parsed(path: Path) -> dict[str, Any]:
    import yaml

    # The C loader where available: a kubeconfig of 50 contexts takes 0.1 s otherwise.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = yaml.load(path.read_bytes(), Loader=loader)
    except (OSError, UnicodeDecodeError) as error:
        raise KubeError(
            f"Cannot read kubeconfig {path}: {error}", remedy="check the path in KUBECONFIG"
        ) from None
    except yaml.YAMLError as error:
        # Not the error's own text: it quotes the lines around the error, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        position = f" (line {mark.line + 1})" if mark else ""
        raise KubeError(
            f"Kubeconfig {path} is not YAML{position}",
            remedy=f"correct the file; `kubectl config view --kubeconfig {path}` checks it",
        ) from None
    return data if isinstance(data, dict) else {}


def _context(entry: Any) -> Context:
    entry = entry if isinstance(entry, dict) else {}
    inner = entry.get("context") or {}
    return Context(
        name=str(entry.get("name", "")),
        cluster=str(inner.get("cluster", "")),
        user=str(inner.get("user", "")),
        namespace=str(inner.get("namespace") or "default"),
    )


def context_named(name: str | None) -> Context:
    """Return that context, or the current one. Raises KubeError."""
    config = read_kubeconfig()
    context = name or config.current
    if context is not None and context in config.contexts:
        return config.contexts[context]
    names = ", ".join(config.contexts) or "none"
    if context is None:
        raise KubeError(
            f"No kubeconfig context is chosen; known: {names}",
            reason="NoContext",
            remedy="`kubectl config use-context NAME`, or `contexts:` in the cluster template"
            if config.contexts
            else "put a kubeconfig at ~/.kube/config, or name one with KUBECONFIG",
        )
    raise KubeError(
        f"There is no kubeconfig context {context!r}; known: {names}",
        reason="NoContext",
        remedy="`kubectl config get-contexts` lists them; see `contexts:` in the cluster template",
    )
