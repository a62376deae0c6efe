"""Questions about oneself: may I, who am I, what may I do."""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.api.auth import Ask, Auth, User
from tests.k8s.standin.api.routing import Route

Body = dict[str, Any]
_PATHS = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)


def is_review(route: Route) -> bool:
    return (route.group, route.plural) in _PATHS


def review(auth: Auth, user: User, route: Route, body: Body) -> Body:
    """The review that was sent, with its status."""
    spec = body.get("spec") or {}
    kind = {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
        "subjectaccessreviews": "SubjectAccessReview",
        "selfsubjectreviews": "SelfSubjectReview",
    }[route.plural]
    head = {"kind": kind, "apiVersion": f"{route.group}/{route.version}", "metadata": {}}
    if kind == "SelfSubjectReview":
        groups = [*user.groups, "system:authenticated"]
        return head | {"status": {"userInfo": {"username": user.name, "groups": groups}}}
    if kind == "SelfSubjectRulesReview":
        rules = auth.rules(user, spec.get("namespace", ""))
        status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        return head | {"spec": spec, "status": status}
    if kind == "SubjectAccessReview":
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
    reason = auth.allowed(user, _asked(spec))
    status = {"allowed": reason is not None}
    if reason:
        status["reason"] = reason
    return head | {"spec": spec, "status": status}


def _asked(spec: Body) -> Ask:
    if (other := spec.get("nonResourceAttributes")) is not None:
        return Ask(other.get("verb", ""), path=other.get("path", "/"))
    given = spec.get("resourceAttributes") or {}
    resource, sub = given.get("resource", ""), given.get("subresource", "")
    return Ask(
        given.get("verb", ""),
        given.get("group", ""),
        f"{resource}/{sub}" if sub else resource,
        given.get("namespace", ""),
        given.get("name", ""),
    )
