"""Errors as the Kubernetes API words them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTypeInvalid", "FieldValueTooLong"}
)


@dataclass(frozen=True)
class FieldError:
    """One thing wrong with one field."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    shown = value if isinstance(value, str) else json.dumps(value)
    quoted = json.dumps(shown) if isinstance(value, str) else shown
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    message = "Required value" + (f": {detail}" if detail else "")
    return FieldError(field, "FieldValueRequired", message)


def not_supported(field: str, value: object, supported: list[object]) -> FieldError:
    known = ", ".join(json.dumps(item) for item in supported)
    message = f"Unsupported value: {json.dumps(value)}: supported values: {known}"
    return FieldError(field, "FieldValueNotSupported", message)


class ApiError(Exception):
    """An answer other than 2xx."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers, self.warnings = details, headers or {}, warnings

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def about(group: str, kind: str, name: str = "") -> dict[str, Any]:
    """The details of an answer: what it is about, without the parts that are empty."""
    parts = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in parts.items() if value}


def qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, details=about(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=about(group, plural, name))


STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(group: str, plural: str, name: str, detail: str = STALE) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {detail}'
    return ApiError(409, "Conflict", message, details=about(group, plural, name))


def bad_request(message: str, *, warnings: tuple[str, ...] = ()) -> ApiError:
    return ApiError(400, "BadRequest", message, warnings=warnings)


def forbidden(group: str, plural: str, name: str, detail: str) -> ApiError:
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return ApiError(
        403, "Forbidden", f"{subject} is forbidden: {detail}", details=about(group, plural, name)
    )


def unsupported_media(accepted: list[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, errors: list[FieldError]) -> ApiError:
    text = str(errors[0]) if len(errors) == 1 else f"[{', '.join(map(str, errors))}]"
    details = about(group, kind, name) | {"causes": [error.cause() for error in errors]}
    message = f'{qualified(group, kind)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, details=details)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def success(group: str, plural: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": about(group, plural, name) | {"uid": uid},
    }
