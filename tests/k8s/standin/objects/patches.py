"""Merge patch, JSON patch, strategic merge patch; what they do not touch stays the same object."""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.objects.errors import ApiError
from tests.k8s.standin.objects.merge_keys import Schema, child, key_of, list_keys, of_object


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


REFUSED = "the server rejected our request due to an error in our request"


def _refused() -> ApiError:
    return ApiError(422, "Invalid", REFUSED, details={})


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    if not isinstance(operations, list):
        raise ApiError(400, "BadRequest", "json: cannot unmarshal object into a JSON patch")
    for operation in operations:
        target = _operate(target, operation)
    return target


def _operate(target: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation.get("path", ""))
    match operation.get("op"):
        case "test":
            if _read(target, path) != operation.get("value"):
                raise _refused()
            return target
        case "add":
            return _write(target, path, operation.get("value"), insert=True)
        case "replace":
            # The real server's library (evanphx/json-patch 4) sets a missing key of an object as
            # well, and Ray's autoscaler relies on that.
            above = _read(target, path[:-1])
            if isinstance(above, list):
                _read(target, path)
            return _write(target, path, operation.get("value"))
        case "remove":
            _read(target, path)
            return _remove(target, path)
        case "move" | "copy" as verb:
            source = _pointer(operation.get("from", ""))
            value = _read(target, source)
            target = _remove(target, source) if verb == "move" else target
            return _write(target, path, value, insert=True)
    raise _refused()


def _pointer(path: str) -> list[str]:
    parts = path.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _read(target: Any, path: list[str]) -> Any:
    try:
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise _refused() from error
    return target


def _write(target: Any, path: list[str], value: Any, *, insert: bool = False) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(target, dict):
        if rest and part not in target:
            raise _refused()
        return {**target, part: _write(target.get(part), rest, value, insert=insert)}
    if not isinstance(target, list):
        raise _refused()
    result = list(target)
    index = len(result) if part == "-" else int(part)
    if rest:
        result[index] = _write(result[index], rest, value, insert=insert)
    elif insert:
        result.insert(index, value)
    else:
        result[index] = value
    return result


def _remove(target: Any, path: list[str]) -> Any:
    if not path:
        return {}
    part, rest = path[0], path[1:]
    result = dict(target) if isinstance(target, dict) else list(target)
    key = part if isinstance(target, dict) else int(part)
    if rest:
        result[key] = _remove(target[key], rest)
    else:
        del result[key]
    return result


def strategic_patch(target: Any, patch: Any, schema: Schema, *, is_root: bool = False) -> Any:
    """Like a merge patch, but lists of known keys merge by key."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys", "$patch")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, []) if item not in value]
            continue
        below = of_object(schema, key) if is_root else child(schema, key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and list_keys(below):
            result[key] = _merge_items(result.get(key, []), value, below)
        elif isinstance(value, dict):
            result[key] = strategic_patch(result.get(key), value, below)
        else:
            result[key] = value
    return result


def _merge_items(old: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    keys, items = list_keys(schema), schema.get("items", {})
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    # The strategic merge key of ports is the port alone.
    keys = keys[:1]
    merged = {key_of(item, keys, items): item for item in old}
    for item in patch:
        mark = key_of(item, keys, items)
        if item.get("$patch") == "delete":
            merged.pop(mark, None)
        else:
            merged[mark] = strategic_patch(merged.get(mark, {}), item, items)
    return list(merged.values())
