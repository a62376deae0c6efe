"""Names, labels and the parts of metadata that only the server sets."""

from __future__ import annotations

import random
import re
import time
import uuid
from typing import Any

from tests.k8s.standin.objects.errors import FieldError, bad_request, invalid_value, required
from tests.k8s.standin.objects.kinds import Kind

Body = dict[str, Any]
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_KEY_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS_1035}')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)
KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_KEY_NAME}')"
)
_NAME_RULES = {
    "Namespace": (_LABEL, 63, LABEL_TEXT),
    "Service": (_DNS_1035, 63, DNS_1035_TEXT),
}
_ANY_NAME = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
ANNOTATIONS_LIMIT = 256 * 1024


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def initial(kind: Kind, namespace: str, given: Body) -> Body:
    """The metadata of a new object."""
    stated = given.get("namespace")
    if stated and stated != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta = {key: value for key, value in given.items() if value is not None}
    for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(key, None)
    meta.pop("managedFields", None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:58] + _suffix()
    if kind.namespaced:
        meta["namespace"] = namespace
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = now()
    if kind.counted:
        meta["generation"] = 1
    return meta


def _suffix() -> str:
    return "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def check(kind: Kind, meta: Body) -> list[FieldError]:
    """What is wrong with names, labels and annotations."""
    if not meta.get("name"):
        return [required("metadata.name", "name or generateName is required")]
    errors = _check_name(kind, meta["name"])
    for key, value in (meta.get("labels") or {}).items():
        errors += _check_label(key, value)
    annotations = meta.get("annotations") or {}
    errors += _check_keys("metadata.annotations", list(annotations))
    size = sum(len(key) + len(str(value)) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        errors.append(FieldError("metadata.annotations", "FieldValueTooLong", text))
    return errors


def _check_name(kind: Kind, name: str) -> list[FieldError]:
    if kind.kind in _ANY_NAME:
        return []
    pattern, limit, text = _NAME_RULES.get(kind.kind, (_SUBDOMAIN, 253, SUBDOMAIN_TEXT))
    errors = []
    if len(name) > limit:
        detail = f"must be no more than {limit} characters"
        errors.append(invalid_value("metadata.name", name, detail))
    if not re.fullmatch(pattern, name):
        errors.append(invalid_value("metadata.name", name, text))
    return errors


def _check_label(key: str, value: object) -> list[FieldError]:
    errors = _check_keys("metadata.labels", [key])
    text = str(value)
    if len(text) > 63:
        detail = "must be no more than 63 characters"
        errors.append(invalid_value("metadata.labels", text, detail))
    if not re.fullmatch(_VALUE, text):
        errors.append(invalid_value("metadata.labels", text, VALUE_TEXT))
    return errors


def _check_keys(field: str, keys: list[str]) -> list[FieldError]:
    errors = []
    for key in keys:
        prefix, slash, name = key.rpartition("/")
        if len(name) > 63:
            errors.append(invalid_value(field, key, "name part must be no more than 63 characters"))
        if not re.fullmatch(_KEY_NAME, name):
            errors.append(invalid_value(field, key, KEY_TEXT))
        if slash and not re.fullmatch(_SUBDOMAIN, prefix):
            errors.append(invalid_value(field, key, f"prefix part {SUBDOMAIN_TEXT}"))
    return errors
