"""Server-side apply: merge by schema, conflicts, and fields that are no longer applied."""

from __future__ import annotations

import json
from typing import Any

from tests.k8s.standin.objects.errors import ApiError
from tests.k8s.standin.objects.fieldsets import (
    Owner,
    Path,
    items_by_mark,
    paths_of,
    shown,
    with_paths,
)
from tests.k8s.standin.objects.merge_keys import Schema, child, is_atomic, of_object

Body = dict[str, Any]
_ABSENT = object()


def applied(
    live: Body, body: Body, owners: tuple[Owner, ...], writer: Owner, schema: Schema, *, force: bool
) -> tuple[Body, tuple[Owner, ...]]:
    """The object after an apply and who owns what then; raises on conflicts."""
    wanted = frozenset(paths_of(body, schema))
    others = tuple(owner for owner in owners if owner.key != writer.key)
    clashes = _clashes(live, body, others, wanted, schema)
    if clashes and not force:
        raise _conflict(clashes)
    merged = _merge_root(live, body, schema)
    before = next((owner.paths for owner in owners if owner.key == writer.key), frozenset())
    kept = frozenset().union(wanted, *(owner.paths for owner in others))
    # Whole items before their parts: without its key an item could not be found any more.
    for path in sorted(before - wanted, key=len):
        if path not in kept and not any(other[: len(path)] == path for other in kept):
            merged = _without(merged, path, schema)
    return merged, (*_yielding(others, clashes), with_paths(writer, wanted))


def _yielding(others: tuple[Owner, ...], clashes: list[tuple[Owner, list[Path]]]) -> list[Owner]:
    """The other owners without what was taken from them by force."""
    lost = {owner.key: frozenset(paths) for owner, paths in clashes}
    left = []
    for owner in others:
        paths = owner.paths - lost.get(owner.key, frozenset())
        if paths == owner.paths:
            left.append(owner)
        elif paths:
            left.append(with_paths(owner, paths))
    return left


def _clashes(
    live: Body, body: Body, others: tuple[Owner, ...], wanted: frozenset[Path], schema: Schema
) -> list[tuple[Owner, list[Path]]]:
    found = []
    for owner in others:
        paths = [
            path
            for path in sorted(owner.paths & wanted)
            if path[-1][0] == "f" and _value(live, path, schema) != _value(body, path, schema)
        ]
        if paths:
            found.append((owner, paths))
    return found


def _conflict(clashes: list[tuple[Owner, list[Path]]]) -> ApiError:
    count = sum(len(paths) for _, paths in clashes)
    lines, causes = [], []
    for owner, paths in clashes:
        if len(paths) == 1:
            lines.append(f"conflict with {owner}: {shown(paths[0])}")
        else:
            listed = "".join(f"\n- {shown(path)}" for path in paths)
            lines.append(f"conflicts with {owner}:{listed}")
        for path in paths:
            causes.append(
                {
                    "reason": "FieldManagerConflict",
                    "message": f"conflict with {owner}",
                    "field": shown(path),
                }
            )
    plural = "s" if count > 1 else ""
    message = f"Apply failed with {count} conflict{plural}: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, details={"causes": causes})


def _merge_root(live: Body, body: Body, schema: Schema) -> Body:
    merged = dict(live)
    for key, value in body.items():
        merged[key] = _merge(live.get(key), value, of_object(schema, key))
    return merged


def _merge(live: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and isinstance(live, dict) and not is_atomic(schema):
        merged = dict(live)
        for key, item in value.items():
            merged[key] = _merge(live.get(key), item, child(schema, key))
        return merged
    if isinstance(value, list) and isinstance(live, list):
        mine, theirs = items_by_mark(value, schema), items_by_mark(live, schema)
        if mine is None or theirs is None:
            return value
        items = schema.get("items", {})
        both = {
            mark: _merge(item, mine[mark], items) if mark in mine else item
            for mark, item in theirs.items()
        }
        return list((both | {m: i for m, i in mine.items() if m not in both}).values())
    return value


def _value(body: Any, path: Path, schema: Schema) -> Any:
    for depth, part in enumerate(path):
        if isinstance(body, list):
            body = (items_by_mark(body, schema) or {}).get(part, _ABSENT)
            schema = schema.get("items", {})
            continue
        if not isinstance(body, dict) or part[2:] not in body:
            return _ABSENT
        body = body[part[2:]]
        schema = of_object(schema, part[2:]) if depth == 0 else child(schema, part[2:])
    return body


def _without(body: Any, path: Path, schema: Schema, *, is_root: bool = True) -> Any:
    part, rest = path[0], path[1:]
    if isinstance(body, list):
        marks = items_by_mark(body, schema) or {}
        if part in marks:
            if rest:
                marks[part] = _without(marks[part], rest, schema.get("items", {}), is_root=False)
            else:
                del marks[part]
        return list(marks.values())
    key = part[2:]
    if not isinstance(body, dict) or key not in body:
        return body
    if not rest:
        return {name: item for name, item in body.items() if name != key}
    below = of_object(schema, key) if is_root else child(schema, key)
    left = _without(body[key], rest, below, is_root=False)
    if left in ({}, []) and body[key] not in ({}, []):
        return {name: item for name, item in body.items() if name != key}
    return {**body, key: left}


def no_manager() -> ApiError:
    text = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}
    return ApiError(
        422,
        "Invalid",
        f"PatchOptions.meta.k8s.io {json.dumps('')} is invalid: fieldManager: {text}",
        details={"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]},
    )
