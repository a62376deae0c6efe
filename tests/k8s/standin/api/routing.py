"""What a path of the API names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from tests.k8s.standin.api.auth import Ask

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_PARTS = frozenset({"status", "finalize"})


@dataclass(frozen=True)
class Route:
    """A path below /api or /apis."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """What follows a subresource, still quoted: the path behind a proxy."""

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def ask(self, method: str, *, watching: bool) -> Ask:
        """What a request to this path wants to do."""
        if method == "DELETE":
            verb = "delete" if self.name else "deletecollection"
        elif method in ("GET", "HEAD") and not self.name:
            verb = "watch" if watching else "list"
        else:
            verb = VERBS.get(method, method.lower())
        # A Role in a namespace may grant that the namespace itself is read.
        of_namespace = self.name if self.plural == "namespaces" else ""
        return Ask(verb, self.group, self.resource, self.namespace or of_namespace, self.name)


def parse(path: str) -> Route | None:
    """None for paths that name no resources."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    plural, *more = [unquote(part) for part in rest[:3]]
    tail = "/".join(rest[3:])
    if len(rest) > 3 or (len(rest) == 3 and path.endswith("/")):
        tail = "/" + tail + ("/" if tail and path.endswith("/") else "")
    name = more[0] if more else ""
    sub = more[1] if len(more) > 1 else ""
    if plural == "namespaces":
        namespace = ""
    return Route(group, version, plural, namespace, name, sub, tail)


def service_name(text: str) -> tuple[str, str, str]:
    """Scheme, name and port of `https:name:port`, `name:port` or `name`."""
    parts = text.split(":")
    if len(parts) == 3:
        return parts[0] or "http", parts[1], parts[2]
    if len(parts) == 2:
        return "http", parts[0], parts[1]
    return "http", text, ""
