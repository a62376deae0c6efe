"""Requests to resources: reading the body and options, calling the store, answering."""

from __future__ import annotations

import json
from typing import Any

import yaml
from aiohttp import web

from tests.k8s.standin.api import reads
from tests.k8s.standin.api.auth import Ask, User
from tests.k8s.standin.api.routing import Route
from tests.k8s.standin.api.state import State
from tests.k8s.standin.objects import patches as patching
from tests.k8s.standin.objects.apply import no_manager
from tests.k8s.standin.objects.deletes import answers_object, bad_dry_run
from tests.k8s.standin.objects.errors import (
    ApiError,
    bad_request,
    success,
    unsupported_media,
)
from tests.k8s.standin.objects.kinds import Kind
from tests.k8s.standin.objects.selectors import matcher
from tests.k8s.standin.objects.store import Snapshot, dump
from tests.k8s.standin.objects.writes import Request

JSON = "application/json"
YAML = "application/yaml"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
WRITE_TYPES = [JSON, YAML, "application/vnd.kubernetes.protobuf"]


def answer(body: bytes, code: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.Response(body=body, status=code, content_type=JSON)
    for text in warnings or ():
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def wants_table(http: web.Request) -> bool:
    return "as=Table" in http.headers.get("Accept", "")


def media_type(http: web.Request) -> str:
    return http.headers.get("Content-Type", JSON).partition(";")[0].strip()


async def read_body(http: web.Request, kind: Kind) -> dict[str, Any]:
    """The object that was sent."""
    media = media_type(http)
    if media not in (JSON, YAML, APPLY):
        raise unsupported_media(WRITE_TYPES)
    data = await http.read()
    try:
        body = json.loads(data) if media == JSON else _yaml(data)
    except ValueError as error:
        raise _unreadable(kind, data) from error
    if not isinstance(body, dict):
        raise _unreadable(kind, data)
    return body


def _yaml(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _unreadable(kind: Kind, data: bytes) -> ApiError:
    text = data.decode(errors="replace")
    first = text.lstrip()[:1]
    odd, where = first, "beginning of value"
    if first == "{":
        odd, where = text.lstrip()[1:].lstrip()[:1], "beginning of object key string"
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
        f"version/kind; json parse error: invalid character '{odd}' looking for {where} ({text})"
    )


class Handlers:
    """The verbs on resources."""

    def __init__(self, state: State) -> None:
        self.state = state

    def request(self, http: web.Request, kind: Kind, route: Route, options: str) -> Request:
        """Where a write goes, with its options checked."""
        query = http.query
        dry_run = query.getall("dryRun", [])
        if any(value != "All" for value in dry_run):
            raise bad_dry_run(options, dry_run)
        agent = http.headers.get("User-Agent", "unknown").partition("/")[0]
        return Request(
            kind,
            route.version,
            route.namespace if kind.namespaced else "",
            route.name,
            route.subresource,
            dry_run=bool(dry_run),
            manager=query.get("fieldManager") or agent,
            validation=query.get("fieldValidation") or "Warn",
            force=query.get("force") in ("true", "1"),
        )

    async def get(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        request = self.request(http, kind, route, "GetOptions")
        found = self.state.writes.existing(request)
        if wants_table(http):
            meta = {"resourceVersion": str(found.version)}
            return answer(dump(reads.table(kind, route.version, [found], meta)))
        return answer(found.raw_full(route.version))

    async def list(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        store, query = self.state.store, dict(http.query)
        namespace = route.namespace
        if wants_table(http):
            items, meta = reads.page(store, kind, namespace, query)
            return answer(dump(reads.table(kind, route.version, items, meta)))
        return answer(reads.list_body(store, kind, route.version, namespace, query))

    async def create(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        body = await read_body(http, kind)
        request = self.request(http, kind, route, "CreateOptions")
        if kind.kind == "Pod" and route.subresource == "binding":
            return self._bind(request, body)
        made = self.state.writes.create(request, body)
        return self._written(request, made, 201)

    def _bind(self, request: Request, body: dict[str, Any]) -> web.Response:
        request.subresource = ""
        node = body.get("target", {}).get("name", "")

        def assign(pod: dict[str, Any]) -> dict[str, Any]:
            return {**pod, "spec": {**pod["spec"], "nodeName": node}}

        self.state.writes.patch(request, assign)
        return answer(dump({"kind": "Status", "apiVersion": "v1", "status": "Success"}), 201)

    async def update(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        body = await read_body(http, kind)
        request = self.request(http, kind, route, "UpdateOptions")
        return self._written(request, self.state.writes.update(request, body))

    async def patch(self, http: web.Request, kind: Kind, route: Route, user: User) -> web.Response:
        request = self.request(http, kind, route, "PatchOptions")
        media = media_type(http)
        accepted = (
            [JSON_PATCH, MERGE, APPLY] if kind.custom else [*(JSON_PATCH, MERGE, STRATEGIC, APPLY)]
        )
        if media not in accepted:
            raise unsupported_media(accepted)
        if media == APPLY:
            return await self._apply(http, request, user)
        try:
            patch = json.loads(await http.read())
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        if media == JSON_PATCH:
            return self._written(
                request,
                self.state.writes.patch(request, lambda body: patching.json_patch(body, patch)),
            )
        if media == STRATEGIC:
            schema = kind.schema(route.version)
            changed = self.state.writes.patch(
                request,
                lambda body: patching.strategic_patch(body, patch, schema, is_root=True),
            )
            return self._written(request, changed)
        changed = self.state.writes.patch(request, lambda body: patching.merge_patch(body, patch))
        return self._written(request, changed)

    async def _apply(self, http: web.Request, request: Request, user: User) -> web.Response:
        body = await read_body(http, request.kind)
        if not http.query.get("fieldManager"):
            raise no_manager()
        kind = request.kind
        is_new = self.state.store.get(kind, request.namespace, request.name) is None
        if is_new:
            ask = Ask("create", kind.group, kind.plural, request.namespace, request.name)
            self.state.auth.require(user, ask)
        made = self.state.writes.apply(request, body)
        return self._written(request, made, 201 if is_new else 200)

    def _written(self, request: Request, made: Snapshot, code: int = 200) -> web.Response:
        return answer(made.raw_full(request.version), code, request.warnings)

    async def delete(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        request = self.request(http, kind, route, "DeleteOptions")
        options = await _delete_options(http)
        request.dry_run = request.dry_run or bool(options.get("dryRun"))
        left, gone = self.state.deletes.delete(request, options)
        if answers_object(kind, gone=gone):
            return answer(left.raw_full(route.version))
        return answer(dump(success(kind.group, kind.plural, route.name, left.uid)))

    async def delete_all(self, http: web.Request, kind: Kind, route: Route) -> web.Response:
        options, query = await _delete_options(http), http.query
        matches = matcher(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = [s for s in self.state.store.list(kind, route.namespace) if matches(s.body)]
        for item in found:
            request = self.request(http, kind, route, "DeleteOptions")
            request.namespace, request.name = item.key
            self.state.deletes.delete(request, options)
        head = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version(route.version),
            "metadata": {"resourceVersion": str(self.state.store.version)},
        }
        inside = b",".join(item.raw_item(route.version) for item in found)
        return answer(dump(head)[:-1] + b',"items":[' + inside + b"]}")


async def _delete_options(http: web.Request) -> dict[str, Any]:
    data = await http.read()
    options = json.loads(data) if data.strip() else {}
    for key in ("propagationPolicy", "gracePeriodSeconds"):
        if key in http.query:
            options[key] = http.query[key]
    return options
