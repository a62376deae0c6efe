"""Who asks and what they may do: bearer tokens, client certificates, and RBAC objects."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.k8s.standin.objects.errors import ApiError, forbidden
from tests.k8s.standin.objects.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from tests.k8s.standin.objects.store import Snapshot, Store

ADMINS = "system:masters"
SELF_REVIEWS = frozenset(
    {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
)


@dataclass(frozen=True)
class User:
    """Somebody known by a token or a certificate."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        return ADMINS in self.groups


@dataclass(frozen=True)
class Ask:
    """What a request wants to do."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: pods/log."""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Of what is no resource: /version."""


class Unauthorized(ApiError):
    """Nobody we know."""

    def __init__(self) -> None:
        super().__init__(401, "Unauthorized", "Unauthorized")


class Auth:
    """Tokens and the rules of their owners."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tokens: dict[str, User] = {}
        self.expiry: dict[str, float] = {}
        self.on_new_token: Callable[[str, User, float | None], None] = lambda *_: None
        self.rules_from_s = 0.0
        """Monotonic; before that nobody's rules are known, as in a server that has just started."""

    def add(self, token: str, user: User, lifetime_s: float | None = None) -> None:
        self.tokens[token] = user
        self.expiry.pop(token, None)
        if lifetime_s is not None:
            self.expiry[token] = time.monotonic() + lifetime_s
        self.on_new_token(token, user, lifetime_s)

    def issue(self, user: User, lifetime_s: float) -> str:
        token = secrets.token_urlsafe(24)
        self.add(token, user, lifetime_s)
        return token

    def expire(self, token: str) -> None:
        self.expiry[token] = 0.0
        if user := self.tokens.get(token):
            self.on_new_token(token, user, 0.0)

    def user(self, header: str, certificate: dict[str, Any] | None) -> User:
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            found = self.tokens.get(token.strip())
            if found is None or time.monotonic() > self.expiry.get(token.strip(), float("inf")):
                raise Unauthorized
            return found
        if certificate:
            return _certified(certificate)
        raise Unauthorized

    def require(self, user: User, ask: Ask) -> None:
        if self.allowed(user, ask) is None:
            raise _refusal(user, ask)

    def allowed(self, user: User, ask: Ask) -> str | None:
        """The reason why it is allowed; None when it is not."""
        if user.is_admin:
            return ""
        if time.monotonic() < self.rules_from_s:
            return None
        if ask.path or ask.resource in SELF_REVIEWS:
            return ""
        for binding, rules in self._grants(user, ask.namespace):
            if any(_covers(rule, ask) for rule in rules):
                meta = binding.body["metadata"]
                name = "/".join(meta[k] for k in ("name", "namespace") if k in meta)
                return f'RBAC: allowed by {binding.kind.kind} "{name}" to User "{user.name}"'
        return None

    def rules(self, user: User, namespace: str) -> list[dict[str, Any]]:
        if user.is_admin:
            return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        return [rule for _, rules in self._grants(user, namespace) for rule in rules]

    def _grants(self, user: User, namespace: str) -> list[tuple[Snapshot, list[dict[str, Any]]]]:
        bindings = self.store.list(CLUSTER_ROLE_BINDING)
        if namespace:
            bindings += self.store.list(ROLE_BINDING, namespace)
        return [
            (binding, self._role(binding))
            for binding in bindings
            if any(_names(s, user) for s in binding.body.get("subjects") or [])
        ]

    def _role(self, binding: Snapshot) -> list[dict[str, Any]]:
        reference = binding.body.get("roleRef", {})
        if reference.get("kind") == "ClusterRole":
            role = self.store.get(CLUSTER_ROLE, "", reference["name"])
        else:
            namespace = binding.body["metadata"].get("namespace", "")
            role = self.store.get(ROLE, namespace, reference.get("name", ""))
        return (role.body.get("rules") or []) if role else []


def _certified(certificate: dict[str, Any]) -> User:
    parts = [pair for entry in certificate.get("subject", ()) for pair in entry]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    return User(name, groups)


def _names(subject: dict[str, Any], user: User) -> bool:
    name, kind = subject.get("name"), subject.get("kind")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    if kind == "Group":
        return name in (*user.groups, "system:authenticated")
    return name == user.name


def _covers(rule: dict[str, Any], ask: Ask) -> bool:
    def has(key: str, value: str) -> bool:
        listed = rule.get(key) or []
        return "*" in listed or value in listed

    names = rule.get("resourceNames") or []
    sub = ask.resource.partition("/")[2]
    resources = rule.get("resources") or []
    named = has("resources", ask.resource) or bool(sub and f"*/{sub}" in resources)
    return (
        has("verbs", ask.verb)
        and has("apiGroups", ask.group)
        and named
        and (not names or ask.name in names)
    )


def _refusal(user: User, ask: Ask) -> ApiError:
    if ask.path:
        text = f'forbidden: User "{user.name}" cannot {ask.verb} path "{ask.path}"'
        return ApiError(403, "Forbidden", text)
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    detail = (
        f'User "{user.name}" cannot {ask.verb} resource "{ask.resource}" in API group '
        f'"{ask.group}" {where}'
    )
    return forbidden(ask.group, ask.resource.partition("/")[0], ask.name, detail)
