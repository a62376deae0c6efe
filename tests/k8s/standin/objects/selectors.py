"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.k8s.standin.objects.errors import bad_request
from tests.k8s.standin.objects.kinds import Kind

Test = Callable[[dict[str, Any]], bool]
_SET_BASED = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_SPLIT = re.compile(r",(?![^(]*\))")


def always(_: dict[str, Any]) -> bool:
    return True


def matcher(kind: Kind, labels: str, fields: str) -> Test:
    """Does an object match both selectors?"""
    tests = [_label_test(part) for part in _terms(labels)]
    tests += [_field_test(kind, part) for part in _terms(fields)]
    if not tests:
        return always
    return lambda body: all(test(body) for test in tests)


def _terms(text: str) -> list[str]:
    return [part.strip() for part in _SPLIT.split(text) if part.strip()]


def labels_of(body: dict[str, Any]) -> dict[str, str]:
    return body["metadata"].get("labels") or {}


def _label_test(term: str) -> Test:
    if found := _SET_BASED.fullmatch(term):
        key, verb, inside = found.groups()
        values = {value.strip() for value in inside.split(",")}
        if verb == "in":
            return lambda body: labels_of(body).get(key) in values
        return lambda body: labels_of(body).get(key) not in values
    key, sign, value = _equation(term)
    if sign == "=":
        return lambda body: labels_of(body).get(key) == value
    if sign == "!=":
        return lambda body: labels_of(body).get(key) != value
    if term.startswith("!"):
        return lambda body: term[1:].strip() not in labels_of(body)
    if re.search(r"\s", term):
        raise bad_request(f"unable to parse requirement: found '{term}'")
    return lambda body: term in labels_of(body)


def _equation(term: str) -> tuple[str, str, str]:
    for sign in ("!=", "==", "="):
        if sign in term and not term.startswith("!"):
            key, _, value = term.partition(sign)
            return key.strip(), sign.replace("==", "="), value.strip()
    return term, "", ""


def _field_test(kind: Kind, term: str) -> Test:
    key, sign, value = _equation(term)
    if not sign:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    if key not in ("metadata.name", "metadata.namespace", *kind.fields):
        raise bad_request(f"field label not supported: {key}")
    path = key.split(".")
    if sign == "=":
        return lambda body: field(body, path) == value
    return lambda body: field(body, path) != value


def field(body: Any, path: list[str]) -> str:
    """A field as selectors see it: text, empty when absent."""
    if path == ["source"]:
        path = ["source", "component"]
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    if body is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(body).lower() if isinstance(body, bool) else str(body)
