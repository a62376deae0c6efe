"""Who set which field: sets of paths, as metadata.managedFields has them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.k8s.standin.objects.merge_keys import (
    Schema,
    child,
    is_atomic,
    is_set,
    key_of,
    list_keys,
    of_object,
)

Path = tuple[str, ...]
UNOWNED = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    }
)


def paths_of(body: dict[str, Any], schema: Schema) -> set[Path]:
    """The paths of an object's fields."""
    found: set[Path] = set()
    for key, value in body.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            value = {name: item for name, item in value.items() if name not in UNOWNED}
            if not value:
                continue
        _collect(value, of_object(schema, key), (f"f:{key}",), found)
    return found


def _collect(value: Any, schema: Schema, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and value and not is_atomic(schema):
        for key, item in value.items():
            _collect(item, child(schema, key), (*path, f"f:{key}"), found)
        return
    if isinstance(value, list) and (keyed := items_by_mark(value, schema)) is not None:
        for mark, item in keyed.items():
            found.add((*path, mark))
            if isinstance(item, dict):
                _collect(item, schema.get("items", {}), (*path, mark), found)
        return
    found.add(path)


def items_by_mark(value: list[Any], schema: Schema) -> dict[str, Any] | None:
    """The items of a list that merges, by the name a path has for each; None for other lists."""
    if is_set(schema):
        return {f"v:{json.dumps(item)}": item for item in value}
    keys = list_keys(schema)
    if not keys or not all(isinstance(item, dict) for item in value):
        return None
    items = schema.get("items", {})

    def mark(item: dict[str, Any]) -> str:
        found = dict(zip(keys, key_of(item, keys, items), strict=True))
        return "k:" + json.dumps(found, separators=(",", ":"), sort_keys=True)

    return {mark(item): item for item in value}


def changes(
    old: dict[str, Any], new: dict[str, Any], schema: Schema
) -> tuple[set[Path], set[Path]]:
    """Paths that were set or changed, paths that are gone."""
    changed: set[Path] = set()
    gone: set[Path] = set()
    for key in old.keys() | new.keys():
        a, b = old.get(key), new.get(key)
        if a is b or key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            a, b = ({k: v for k, v in (part or {}).items() if k not in UNOWNED} for part in (a, b))
        _compare(a, b, of_object(schema, key), (f"f:{key}",), changed, gone)
    return changed, gone


def _compare(
    a: Any, b: Any, schema: Schema, path: Path, changed: set[Path], gone: set[Path]
) -> None:
    if a is b or a == b:
        return
    if isinstance(a, dict) and isinstance(b, dict) and a and b and not is_atomic(schema):
        for key in a.keys() | b.keys():
            below = (*path, f"f:{key}")
            _pair(a, b, key, child(schema, key), below, changed, gone)
        return
    if isinstance(a, list) and isinstance(b, list):
        left, right = items_by_mark(a, schema), items_by_mark(b, schema)
        if left is not None and right is not None:
            for mark in left.keys() | right.keys():
                items = schema.get("items", {})
                _pair(left, right, mark, items, (*path, mark), changed, gone)
            return
    if a is not None:
        _collect(a, schema, path, gone)
    if b is not None:
        _collect(b, schema, path, changed)
    gone -= changed


def _pair(
    a: dict[str, Any],
    b: dict[str, Any],
    key: str,
    schema: Schema,
    path: Path,
    changed: set[Path],
    gone: set[Path],
) -> None:
    """One key of two maps: compared when both have it, else set or gone as a whole."""
    if key in a and key in b:
        _compare(a[key], b[key], schema, path, changed, gone)
        return
    target = changed if key in b else gone
    if not path[-1].startswith("f:"):
        target.add(path)
    value = b[key] if key in b else a[key]
    if path[-1].startswith("f:") or isinstance(value, dict):
        _collect(value, schema, path, target)


@dataclass(frozen=True)
class Owner:
    """What one manager owns by one way of writing."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: frozenset[Path]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.manager, self.operation, self.api_version, self.subresource

    @cached_property
    def entry(self) -> dict[str, Any]:
        entry = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(self.paths),
        }
        return entry | ({"subresource": self.subresource} if self.subresource else {})

    def __str__(self) -> str:
        """As a conflict names it."""
        name = json.dumps(self.manager)
        if self.operation == "Apply":
            return name
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f"{name}{part} using {self.api_version}"


def written(entries: list[dict[str, Any]]) -> tuple[Owner, ...]:
    """Owners as a client sent them in managedFields; one empty entry takes all away."""
    return tuple(
        Owner(
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry.get("subresource", ""),
            entry.get("time", ""),
            frozenset(_leaves(entry.get("fieldsV1") or {}, ())),
        )
        for entry in entries
        if entry
    )


def _leaves(tree: dict[str, Any], path: Path) -> set[Path]:
    found: set[Path] = set()
    for part, below in tree.items():
        if part == ".":
            found.add(path)
        else:
            found |= _leaves(below, (*path, part)) if below else {(*path, part)}
    return found


def _tree(paths: frozenset[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def shown(path: Path) -> str:
    """A path as a conflict writes it."""
    text = ""
    for part in path:
        kind, _, value = part.partition(":")
        if kind == "f":
            text += f".{value}"
        elif kind == "v":
            text += f"[={value}]"
        else:
            pairs = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(value).items())
            text += f"[{pairs}]"
    return text


def updated(
    owners: tuple[Owner, ...], writer: Owner, changed: set[Path], gone: set[Path]
) -> tuple[Owner, ...]:
    """The owners after an update: the writer has what it changed, nobody what is gone."""
    if not changed and not gone:
        return owners
    rest = []
    mine: set[Path] = set(changed)
    for owner in owners:
        if owner.key == writer.key:
            mine |= owner.paths - gone
            continue
        left = owner.paths - changed - gone
        if left:
            rest.append(owner if len(left) == len(owner.paths) else with_paths(owner, left))
    return (*rest, with_paths(writer, frozenset(mine))) if mine else tuple(rest)


def with_paths(owner: Owner, paths: frozenset[Path]) -> Owner:
    return Owner(
        owner.manager, owner.operation, owner.api_version, owner.subresource, owner.time, paths
    )
