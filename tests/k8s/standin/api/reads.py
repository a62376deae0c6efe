"""Get, list with pages, and tables as kubectl asks for them."""

from __future__ import annotations

import base64
import json
import re
import time
from calendar import timegm
from typing import Any

from tests.k8s.standin.objects.errors import bad_request
from tests.k8s.standin.objects.kinds import Kind
from tests.k8s.standin.objects.selectors import matcher
from tests.k8s.standin.objects.store import Snapshot, Store, dump, too_old_page

Query = dict[str, str]


def list_body(store: Store, kind: Kind, version: str, namespace: str, query: Query) -> bytes:
    """A list, or one page of it."""
    items, meta = page(store, kind, namespace, query)
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version(version), "metadata": meta}
    inside = b",".join(item.raw_item(version) for item in items)
    return dump(head)[:-1] + b',"items":[' + inside + b"]}"


def page(
    store: Store, kind: Kind, namespace: str, query: Query
) -> tuple[list[Snapshot], dict[str, Any]]:
    """The items asked for, and the list's metadata."""
    matches = matcher(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    items = [item for item in store.list(kind, namespace) if matches(item.body)]
    version, after = store.version, None
    if token := query.get("continue"):
        version, after = _read_token(token)
        if version < store.table(kind).floor:
            raise too_old_page()
        items = [item for item in items if item.key > after]
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    limit = int(query.get("limit") or 0)
    # A real server sends an empty `continue` with whole lists of custom resources only.
    if kind.custom:
        meta["continue"] = ""
    if limit and len(items) > limit:
        meta["continue"] = _token(version, items[limit - 1])
        if not (query.get("labelSelector") or query.get("fieldSelector")):
            meta["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return items, meta


def _token(version: int, last: Snapshot) -> str:
    return base64.urlsafe_b64encode(dump([version, *last.key])).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise bad_request("continue key is not valid") from error
    return version, (namespace, name)


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COLUMNS: dict[str, list[dict[str, Any]]] = {
    "Pod": [
        {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
        _AGE,
        {"name": "IP", "type": "string", "jsonPath": ".status.podIP", "priority": 1},
        {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName", "priority": 1},
    ],
    "Event": [
        {"name": "Last Seen", "type": "date", "jsonPath": ".lastTimestamp"},
        {"name": "Type", "type": "string", "jsonPath": ".type"},
        {"name": "Reason", "type": "string", "jsonPath": ".reason"},
        {"name": "Object", "type": "string", "jsonPath": ".involvedObject.name"},
        {"name": "Message", "type": "string", "jsonPath": ".message"},
    ],
}
_NAME = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace.",
    "priority": 0,
}


def table(
    kind: Kind, version: str, items: list[Snapshot], meta: dict[str, Any], *, headers: bool = True
) -> dict[str, Any]:
    """What kubectl prints."""
    columns = kind.columns.get(version) or _COLUMNS.get(kind.kind) or [_AGE]
    definitions = [
        {
            "name": column["name"],
            "type": column.get("type", "string"),
            "format": column.get("format", ""),
            "description": column.get("description", ""),
            "priority": column.get("priority", 0),
        }
        for column in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [_NAME, *definitions] if headers else [],
        "rows": [_row(item, columns) for item in items],
    }


def _row(item: Snapshot, columns: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [item.body["metadata"]["name"]]
    for column in columns:
        value = _json_path(item.body, column["jsonPath"])
        cells.append(_since(value) if column.get("type") == "date" and value else value)
    part = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item.body["metadata"],
    }
    return {"cells": cells, "object": part}


def _json_path(body: Any, path: str) -> Any:
    """The simple paths of printer columns; what is harder shows nothing."""
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(body, list):
            body = body[int(part)] if part.isdigit() and int(part) < len(body) else None
        else:
            body = body.get(part) if isinstance(body, dict) else None
    return body


def _since(moment: str) -> str:
    try:
        then = timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return "<invalid>"
    seconds = max(0, int(time.time() - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
