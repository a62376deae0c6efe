"""Errors of a Kubernetes API server in readable words, with what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from llmops_kernel.errors import ClusterError, ClusterUnreachableError
from llmops_kernel.providers.kuberay.api.paths import INSTALL_KUBERAY, with_scope
from llmops_kernel.providers.kuberay.api.rbac import granted_by, rbac_file
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.protocol import Waiting

if TYPE_CHECKING:
    import httpx


_STATUS_OF: Final = {401: 401, 403: 403, 404: 404, 409: 409, 400: 422, 422: 422}
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FORBIDDEN: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_UNKNOWN_FIELD: Final = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_GROUP: Final = re.compile(r"^/apis/([^/]+)/")
_NAMESPACE: Final = re.compile(r"/namespaces/([^/?]+)/")
_NOT_CHECKED: Final = "some validation rules were not checked"
_OWNERS: Final = {
    "ray.io": ("KubeRay's operator", INSTALL_KUBERAY),
    "kueue.x-k8s.io": (
        "Kueue",
        "remove `queue` from the template, or ask an administrator to install Kueue",
    ),
}


class KubeError(ClusterError):
    """The Kubernetes API server rejected a request, or could not be reached."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        code: int = 0,
        reason: str = "",
        causes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code
        """HTTP status; 0 if there was no answer."""
        self.reason = reason
        """Kubernetes' own reason: NotFound, Forbidden, AlreadyExists, Conflict, Invalid, ..."""
        self.causes = tuple(causes)
        """Pairs of a field and what is wrong with it."""
        self.status = _STATUS_OF.get(code, 500)


class KubeUnreachable(KubeError, ClusterUnreachableError):
    """The server did not answer, or answered that it cannot work now."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        code: int = 0,
        reason: str = "Unreachable",
        causes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message, remedy=remedy, code=code, reason=reason, causes=causes)
        self.status = ClusterUnreachableError.status


class KubeDenied(KubeError, ClusterUnreachableError):
    """A right or a valid credential is missing.

    It is asked again: an API server that starts denies everything, and users sign in again.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        code: int = 403,
        reason: str = "Forbidden",
        causes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message, remedy=remedy, code=code, reason=reason, causes=causes)


class KubeGone(KubeError):
    """The watch is too far behind; list again."""


def unreachable(
    error: httpx.HTTPError, *, context: str, server: str, read_s: float | None
) -> KubeUnreachable:
    """Return the error for a request that got no answer."""
    import httpx

    subject = f"The Kubernetes API server of context {context} ({server})"
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate" in text.lower():
        return KubeUnreachable(
            f"{subject} presents a certificate that is not trusted: {text}",
            reason="Certificate",
            remedy="check `certificate-authority` of the cluster in your kubeconfig; a proxy"
            " may present its own certificate",
        )
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        failure = "cannot be reached: no answer to a connection"
    elif isinstance(error, httpx.TimeoutException):
        failure = f"does not answer within {read_s or 0.0:.0f} s"
    elif isinstance(error, httpx.ConnectError):
        failure = f"cannot be reached: {text}"
    else:
        failure = f"closed the connection: {text}"
    return KubeUnreachable(
        f"{subject} {failure}",
        reason="Refused" if isinstance(error, httpx.ConnectError) else "Unreachable",
        remedy=with_scope(
            "check the VPN, and that the cluster is running: `kubectl version` should answer",
            context=context,
        ),
    )


def error_of(
    code: int,
    body: Mapping[str, Any] | str,
    *,
    method: str,
    path: str,
    context: str,
    sign_in: str = "",
) -> KubeError:
    """Return the error for an answer: `body` is a Status object, or text if it is not one."""
    error = _error_of(code, body, method=method, path=path, context=context, sign_in=sign_in)
    match = _NAMESPACE.search(path)
    namespace = match[1] if match else ""
    error.remedy = with_scope(error.remedy, context=context, namespace=namespace)
    return error


def _error_of(
    code: int,
    body: Mapping[str, Any] | str,
    *,
    method: str,
    path: str,
    context: str,
    sign_in: str,
) -> KubeError:
    status = body if isinstance(body, Mapping) and body.get("kind") == "Status" else {}
    reported = str(status.get("message") or (body if isinstance(body, str) else "")).strip()
    details: Mapping[str, Any] = status.get("details") or {}
    reason = str(status.get("reason") or "")
    place = f"context {context}"
    if code == 401:
        return _unauthorized(place, sign_in)
    if code == 403:
        return _forbidden(reported, details, place=place, verb=_VERBS.get(method, "get"))
    if code == 404:
        return _not_found(reported, details, place=place, path=path)
    if code == 410 or reason in ("Expired", "Gone"):
        return KubeGone(reported or "The watch is too far behind", code=410, reason="Expired")
    if code == 409:
        return _conflict(reported, reason, details, place=place)
    if code in (400, 422):
        if is_of_policy(reported):
            return _refused(reported, place=place, code=code)
        return _invalid(code, reported, reason, details)
    if code == 429 or code >= 500:
        return KubeUnreachable(
            f"The Kubernetes API server of {place} answered {code}:"
            f" {reported[:300] or 'no reason'}",
            remedy="it is overloaded or restarting: try again in a minute",
            code=code,
            reason=reason or "ServerError",
        )
    return KubeError(f"{place}: {reported[:500]}", code=code, reason=reason)


def _unauthorized(place: str, sign_in: str) -> KubeError:
    return KubeDenied(
        f"The Kubernetes API server of {place} rejected the credentials: expired or wrong (401)",
        remedy=sign_in or "sign in again; then `kubectl auth whoami` shows your user",
        code=401,
        reason="Unauthorized",
    )


def _forbidden(reported: str, details: Mapping[str, Any], *, place: str, verb: str) -> KubeError:
    match = _FORBIDDEN.search(reported)
    if match is None:
        return _refused(reported, place=place)
    group, namespace = match["group"] or "", match["namespace"]
    resource, verb = match["resource"], match["verb"] or verb
    scope = f"namespace {namespace}" if namespace else "the whole cluster"
    rule = f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
    grants = granted_by(resource, group) if namespace else ""
    return KubeDenied(
        f"{match['user']!r} is not allowed to {verb} {resource} in {scope} ({place})",
        remedy=f"ask for a {'Role' if namespace else 'ClusterRole'} with the rule {rule}: "
        + (f"{grants} grants it" if grants else f"see {rbac_file()}"),
        code=403,
        reason="Forbidden",
        causes=[(f"{verb} {resource}", group)],
    )


def _refused(reported: str, *, place: str, code: int = 403) -> KubeError:
    """Return the error of an admission rule (not RBAC): quota, priority class, policy."""
    waiting = refusal(reported)
    message = waiting.message if waiting else reported
    remedy = waiting.remedy if waiting else ""
    return KubeError(
        f"Rejected in {place}: {message}",
        remedy=remedy or "an admission policy rejects it; ask an administrator of the cluster",
        code=code,
        reason="Forbidden",
    )


def _not_found(reported: str, details: Mapping[str, Any], *, place: str, path: str) -> KubeError:
    kind, name = details.get("kind"), details.get("name")
    if kind == "namespaces":
        return KubeError(
            f"There is no namespace {name!r} in {place}",
            remedy=f"`kubectl create namespace {name}`, or another `namespace:` in the template",
            code=404,
            reason="NamespaceNotFound",
        )
    group = _GROUP.match(path)
    if not kind and group is not None:
        owner, remedy = _OWNERS.get(
            group[1], (f"The operator of {group[1]}", "ask an administrator to install it")
        )
        return KubeError(
            f"{owner} is not installed in {place}: its API {group[1]} does not exist",
            remedy=remedy,
            code=404,
            reason="ApiNotFound",
        )
    description = reported or f"{path} does not exist"
    return KubeError(f"{description} ({place})", code=404, reason="NotFound")


def _conflict(reported: str, reason: str, details: Mapping[str, Any], *, place: str) -> KubeError:
    causes = _causes(details)
    if reason == "AlreadyExists":
        return KubeError(
            f"{reported} ({place})",
            remedy="an object of that name exists: choose another name, or delete it",
            code=409,
            reason=reason,
        )
    if any("conflict with" in cause for _, cause in causes):
        lines = "".join(f"\n  {field}: {cause}" for field, cause in causes)
        return KubeError(
            f"Other field managers own fields that this would change ({place}):{lines}",
            remedy="write their values into the template, or take these fields over with `llmops"
            " cluster apply TEMPLATE --force`; `llmops cluster diff TEMPLATE` shows both values",
            code=409,
            reason="Conflict",
            causes=causes,
        )
    return KubeError(
        f"{reported or 'It was changed by another client'} ({place})",
        remedy="run the command again",
        code=409,
        reason=reason or "Conflict",
    )


def _invalid(code: int, reported: str, reason: str, details: Mapping[str, Any]) -> KubeError:
    causes = _causes(details)
    causes += [(field, f"{problem} field") for problem, field in _UNKNOWN_FIELD.findall(reported)]
    if not causes:
        return KubeError(reported or f"HTTP {code}", code=code, reason=reason or "BadRequest")
    kind = str(details.get("kind") or reported.split(" ", 1)[0])
    name = f" {details['name']!r}" if details.get("name") else ""
    lines = "".join(f"\n  {field}: {cause}" for field, cause in causes)
    remedy = "`llmops cluster render T` shows the whole manifest; correct these in the template"
    if any("unknown field" in cause for _, cause in causes):
        remedy = (
            "the field is misspelled, or the installed CRD of KubeRay is older than the field:"
            " remove it from the template, or ask an administrator to upgrade KubeRay"
        )
    return KubeError(
        f"The API server rejected the {kind}{name}:{lines}",
        remedy=remedy,
        code=code,
        reason="Invalid",
        causes=causes,
    )


def _causes(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the causes without the API server's remark that it checked no further."""
    causes = []
    for cause in details.get("causes") or []:
        field, message = str(cause.get("field") or ""), str(cause.get("message") or "")
        if _NOT_CHECKED in message:
            continue
        message = message.replace(f"{field} in body ", "") if field else message
        causes.append(("" if field == "<nil>" else field or "spec", message))
    return [(field or _field_in(message), message) for field, message in causes]


def _field_in(message: str) -> str:
    """Return the field from the message: for an int32 that is too large it is only there."""
    return message.rsplit(" in ", 1)[-1] if " in spec" in message else "spec"


# --- Rejected objects: quota, priority class, policy, rights ---


_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<name>[^,\s]+), requested: (?P<asked>\S+), "
    r"used: (?P<used>\S+), limited: (?P<limit>[^\s\]}\"']+)"
)
_FAILED_QUOTA: Final = re.compile(r"failed quota: (?P<name>[^:]+): must specify (?P<what>[^\"'}]+)")
_PRIORITY: Final = re.compile(r"no PriorityClass with name \"?(?P<name>[\w.-]+)\"? was found")
_ACCOUNT: Final = re.compile(r"serviceaccount \"(?P<name>[^\"]+)\" not found")
_SECURITY: Final = re.compile(r"violates PodSecurity \"(?P<level>[^\"]+)\": (?P<why>.+)")
_WEBHOOK: Final = re.compile(
    r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<why>.+)"
)
_POLICY: Final = re.compile(
    r"ValidatingAdmissionPolicy '(?P<name>[^']+)' with binding '[^']+' denied request: (?P<why>.+)"
)
_RANGE: Final = re.compile(
    r"(?P<what>(?:maximum|minimum) \S+ usage per (?:Container|Pod) is [^\"\],]+)"
)
_TERMINATING: Final = re.compile(r"because it is being terminated")
_NOT_ALLOWED: Final = re.compile(r"User \"(?P<user>[^\"]+)\" cannot (?P<what>.+)")


def refusal(message: str) -> Waiting | None:
    """Return a readable sentence; None for a text that is no known rejection."""
    message = message.replace('\\"', '"')
    if match := _QUOTA.search(message):
        return _quota(match)
    for pattern, kind, reported, remedy in _KNOWN:
        if match := pattern.search(message):
            parts = {name: one_line(value) for name, value in match.groupdict().items()}
            return Waiting(
                message=reported.format(**parts),
                remedy=remedy.format(**parts),
                kind=kind,
                is_stuck=True,
            )
    return None


def is_of_policy(message: str) -> bool:
    """Return whether an admission policy of the API server rejects the object."""
    return bool(_POLICY.search(message))


def _quota(match: re.Match[str]) -> Waiting:
    """Parse `requested: pods=1, used: pods=10, limited: pods=10`, each with several resources."""
    requested, used, limit = (_amounts(match[part]) for part in ("asked", "used", "limit"))
    reported = [
        f"{name} is at {used.get(name, '?')} of {limit.get(name, '?')}, {number} more requested"
        for name, number in requested.items()
    ]
    return Waiting(
        message=f"quota {match['name']} of the namespace is exceeded: {'; '.join(reported)}",
        remedy="suspend or delete a cluster of this namespace, request less, or ask an"
        " administrator to raise the quota: "
        f"`kubectl describe resourcequota {match['name']}`",
        kind="quota",
        is_stuck=True,
    )


def _amounts(part: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in part.strip(",").split(","))
    return {name: value for name, separator, value in pairs if separator}


_KNOWN: Final = (
    (
        _FAILED_QUOTA,
        "quota",
        "quota {name} of the namespace requires the pods to specify {what}",
        "set cpus and memory of the head and the worker groups in the template",
    ),
    (
        _PRIORITY,
        "priority",
        "there is no PriorityClass {name}",
        "set priority_class to an existing one (`kubectl get priorityclasses`)",
    ),
    (
        _ACCOUNT,
        "account",
        "there is no ServiceAccount {name} in the namespace",
        "`kubectl create serviceaccount {name}`, or set service_account to an existing one",
    ),
    (
        _SECURITY,
        "policy",
        "the namespace's pod security level {level} forbids the pods: {why}",
        "change the pods with `pod:` in the template, or ask an administrator to change the level",
    ),
    (
        _RANGE,
        "quota",
        "a LimitRange of the namespace forbids the pods: {what}",
        "request less in the template, or ask an administrator to raise the limit: `kubectl"
        " describe limitrange`",
    ),
    (
        _TERMINATING,
        "namespace",
        "the namespace is being deleted",
        "wait until it is deleted and create it again, or use another namespace",
    ),
    (
        _WEBHOOK,
        "policy",
        "admission webhook {name} denied the request: {why}",
        "correct in the template what the message names",
    ),
    (
        _POLICY,
        "policy",
        "admission policy {name} denied the request: {why}",
        "correct in the template what the message names; `kubectl get validatingadmissionpolicy"
        " {name} -o yaml` shows the rule",
    ),
    (
        _NOT_ALLOWED,
        "permission",
        "{user} cannot {what}",
        f"ask an administrator to grant it: {rbac_file()} has the rules",
    ),
)
