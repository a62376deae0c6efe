"""A custom resource against its schema: prune, default, validate."""

from __future__ import annotations

import copy
import json
import re
from functools import lru_cache
from typing import Any

from tests.k8s.standin.objects.errors import (
    BLOCKING,
    FieldError,
    invalid_value,
    not_supported,
    required,
)
from tests.k8s.standin.objects.merge_keys import Schema, key_of, list_keys

METADATA_FIELDS = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
ROOT = ("apiVersion", "kind", "metadata")
_UNCHECKED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def prune_object(body: dict[str, Any], schema: Schema, unknown: list[str]) -> dict[str, Any]:
    """Without fields that the schema does not know; their paths go to `unknown`, sorted."""
    if not schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        return body
    rest = {key: value for key, value in body.items() if key not in ROOT}
    found: list[str] = []
    kept = _prune(rest, schema, "", found)
    metadata = body.get("metadata", {})
    bogus = [key for key in metadata if key not in METADATA_FIELDS]
    unknown.extend(sorted([*found, *(f"metadata.{key}" for key in bogus)]))
    metadata = {key: value for key, value in metadata.items() if key in METADATA_FIELDS}
    return {"metadata": metadata, **kept}


def _prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        return _prune_map(value, schema, path, unknown)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [
            _prune(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)
        ]
    return value


def _prune_map(value: dict[str, Any], schema: Schema, path: str, unknown: list[str]) -> Any:
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties")
    keep_all = schema.get("x-kubernetes-preserve-unknown-fields") or more is True
    kept = {}
    for key, item in value.items():
        below = properties.get(key, more if isinstance(more, dict) else None)
        where = f"{path}.{key}" if path else key
        if below is None:
            if keep_all:
                kept[key] = item
            else:
                unknown.append(where)
        elif item is not None or below.get("nullable"):
            kept[key] = _prune(item, below, where, unknown)
    return kept


def default(value: Any, schema: Schema) -> Any:
    """With the defaults that the schema gives; parts where nothing is added stay the same."""
    if isinstance(value, dict):
        return _default_map(value, schema)
    if isinstance(value, list) and (items := schema.get("items")):
        filled = [default(item, items) for item in value]
        return filled if any(a is not b for a, b in zip(filled, value, strict=True)) else value
    return value


def _default_map(value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    added = {}
    for key, below in schema.get("properties", {}).items():
        if key in value:
            filled = default(value[key], below)
            if filled is not value[key]:
                added[key] = filled
        elif "default" in below:
            added[key] = default(copy.deepcopy(below["default"]), below)
    if isinstance(more := schema.get("additionalProperties"), dict):
        for key in value.keys() - schema.get("properties", {}).keys():
            added[key] = default(value[key], more)
    return {**value, **added} if added else value


def check(body: dict[str, Any], old: dict[str, Any] | None, schema: Schema) -> list[FieldError]:
    """All that is wrong with an object; what is the very same as before is not looked at."""
    errors: list[FieldError] = []
    for key, value in body.items():
        below = schema.get("properties", {}).get(key)
        if key not in ROOT and below and not (old and old.get(key) is value):
            _validate(value, below, key, errors)
    errors += [required(key) for key in schema.get("required", ()) if key not in body]
    _check_rest(body, old, schema, errors)
    return errors


def _check_rest(
    body: dict[str, Any], old: dict[str, Any] | None, schema: Schema, errors: list[FieldError]
) -> None:
    for key, value in body.items():
        if key not in ROOT and not (old and old.get(key) is value):
            _duplicates(value, schema.get("properties", {}).get(key, {}), key, errors)
    if blocked(errors):
        return
    for path, rules in _rules(_Hashed(schema)):
        _apply_rules(rules, path, _at(body, path), _at(old or {}, path), errors)


def blocked(errors: list[FieldError]) -> bool:
    return any(error.reason in BLOCKING for error in errors)


def closed(errors: list[FieldError]) -> list[FieldError]:
    """With the last line that a real server adds when errors kept it from looking further."""
    return [*errors, _UNCHECKED] if blocked(errors) else errors


def _type_name(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    names |= {list: "array", dict: "object"}
    return names.get(type(value), "null")


def _matches(value: object, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind = schema.get("type")
    if kind is None or (value is None and schema.get("nullable")):
        return True
    name = _type_name(value)
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return name == kind or (kind == "number" and name == "integer")


def _validate(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if not _matches(value, schema):
        errors.extend(_wrong_type(value, schema, path))
        return
    if isinstance(value, dict):
        _validate_map(value, schema, path, errors)
    elif isinstance(value, list):
        _sizes(value, schema, path, errors, unit="items", least="minItems", most="maxItems")
        for index, item in enumerate(value):
            _validate(item, schema.get("items", {}), f"{path}[{index}]", errors)
    else:
        _validate_scalar(value, schema, path, errors)


def _wrong_type(value: Any, schema: Schema, path: str) -> list[FieldError]:
    wanted, name = schema.get("type", "integer,string"), _type_name(value)
    form = schema.get("format", "")
    fractional = isinstance(value, float) and form.startswith("int")
    if fractional:
        wanted, name = form, "float64"
    quoted = json.dumps(name)
    text = f"Invalid value: {quoted}: {path} in body must be of type {wanted}: {quoted}"
    errors = [FieldError(path, "FieldValueTypeInvalid", text)]
    return [*errors, _out_of_range(form, path)] if fractional else errors


def _out_of_range(form: str, path: str) -> FieldError:
    detail = f"Checked value must be of type integer with format {form} in {path}"
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {detail}')


def _validate_map(
    value: dict[str, Any], schema: Schema, path: str, errors: list[FieldError]
) -> None:
    properties, more = schema.get("properties", {}), schema.get("additionalProperties")
    for key in sorted(value):
        below = properties.get(key, more if isinstance(more, dict) else None)
        if below is not None:
            _validate(value[key], below, f"{path}.{key}", errors)
    missing = [key for key in schema.get("required", ()) if key not in value]
    errors.extend(required(f"{path}.{key}") for key in missing)


def _sizes(
    value: Any,
    schema: Schema,
    path: str,
    errors: list[FieldError],
    *,
    unit: str,
    least: str,
    most: str,
) -> None:
    low, high = schema.get(least), schema.get(most)
    if low is not None and len(value) < low:
        detail = f"{path} in body should be at least {low} {unit} long"
        errors.append(invalid_value(path, value, detail))
    if high is not None and len(value) > high:
        text = f"Too long: may not be more than {high} {'bytes' if unit == 'chars' else unit}"
        errors.append(FieldError(path, "FieldValueTooLong", text))


def _validate_scalar(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if "enum" in schema and value not in schema["enum"]:
        errors.append(not_supported(path, value, schema["enum"]))
    if isinstance(value, str):
        _sizes(value, schema, path, errors, unit="chars", least="minLength", most="maxLength")
        pattern = schema.get("pattern")
        if pattern and not _compiled(pattern).search(value):
            detail = f"{path} in body should match '{pattern}'"
            errors.append(invalid_value(path, value, detail))
        if schema.get("format") == "date-time" and not _TIME.fullmatch(value):
            detail = f"{path} in body must be of type date-time: {json.dumps(value)}"
            errors.append(invalid_value(path, value, detail))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _validate_number(value, schema, path, errors)


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_BITS = {"int32": 31, "int64": 63}


def _validate_number(value: float, schema: Schema, path: str, errors: list[FieldError]) -> None:
    bits = _BITS.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        errors.append(_out_of_range(schema["format"], path))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        detail = f"{path} in body should be greater than or equal to {low}"
        errors.append(invalid_value(path, value, detail))
    if high is not None and value > high:
        detail = f"{path} in body should be less than or equal to {high}"
        errors.append(invalid_value(path, value, detail))


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _duplicates(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if isinstance(value, dict):
        more = schema.get("additionalProperties")
        for key in sorted(value):
            below = schema.get("properties", {}).get(key, more)
            if isinstance(below, dict):
                _duplicates(value[key], below, f"{path}.{key}", errors)
    elif isinstance(value, list):
        _duplicate_items(value, schema, path, errors)
        for index, item in enumerate(value):
            _duplicates(item, schema.get("items", {}), f"{path}[{index}]", errors)


def _duplicate_items(value: list[Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    keys, seen = list_keys(schema), set()
    if not keys and schema.get("x-kubernetes-list-type") != "set":
        return
    for index, item in enumerate(value):
        if keys and not isinstance(item, dict):
            continue
        mark = json.dumps(key_of(item, keys, schema.get("items", {})) if keys else item)
        if mark in seen:
            shown = {key: item[key] for key in keys if key in item} if keys else item
            text = f"Duplicate value: {json.dumps(shown, separators=(',', ':'))}"
            errors.append(FieldError(f"{path}[{index}]", "FieldValueDuplicate", text))
        seen.add(mark)


class _Hashed:
    """A schema as a key of a cache: by identity."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and other.schema is self.schema


@lru_cache(maxsize=64)
def _rules(schema: _Hashed) -> list[tuple[tuple[str, ...], list[dict[str, str]]]]:
    """Where rules stand, outside of lists: RayCluster has none inside."""
    found: list[tuple[tuple[str, ...], list[dict[str, str]]]] = []

    def walk(part: Schema, path: tuple[str, ...]) -> None:
        if rules := part.get("x-kubernetes-validations"):
            found.append((path, rules))
        for key, below in part.get("properties", {}).items():
            walk(below, (*path, key))

    walk(schema.schema, ())
    return found


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _apply_rules(
    rules: list[dict[str, str]],
    path: tuple[str, ...],
    value: Any,
    before: Any,
    errors: list[FieldError],
) -> None:
    """The two shapes of rules that RayCluster has: an unchanging value, one of a few values."""
    if value is None:
        return
    for rule in rules:
        text = rule["rule"]
        if text == "self == oldSelf":
            holds = before is None or value == before
        elif text.startswith("self in ["):
            holds = value in re.findall(r"'([^']*)'", text)
        else:
            continue
        if not holds:
            errors.append(invalid_value(".".join(path), value, rule["message"]))
