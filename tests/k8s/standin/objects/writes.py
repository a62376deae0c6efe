"""Create, update, patch and apply: one way from what was sent to what is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.standin.objects import apply, builtin, fieldsets, metadata, schema
from tests.k8s.standin.objects.errors import (
    ApiError,
    FieldError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from tests.k8s.standin.objects.kinds import NAMESPACE, Kind
from tests.k8s.standin.objects.store import Snapshot, Store

Body = dict[str, Any]
STATUS_METADATA = frozenset({"Pod", "Node"})
"""Kinds whose labels and annotations may be written together with their status."""


@dataclass
class Request:
    """Where a write goes and how it was asked for."""

    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str = ""
    dry_run: bool = False
    manager: str = "unknown"
    validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def on_status(self) -> bool:
        return self.subresource == "status"

    def owner(self, operation: str) -> fieldsets.Owner:
        return fieldsets.Owner(
            self.manager,
            operation,
            self.kind.api_version(self.version),
            self.subresource,
            metadata.now(),
            frozenset(),
        )


Admission = Callable[[Request, Body], None]
UpdateAdmission = Callable[[Request, Snapshot, Body], None]


class Writes:
    """All that changes objects, except their deletion."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.admissions: list[Admission] = []
        self.update_admissions: list[UpdateAdmission] = []
        self.release: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot
        """Deletes an object that only waited for its last finalizer."""

    def existing(self, request: Request) -> Snapshot:
        found = self.store.get(request.kind, request.namespace, request.name)
        if found is None:
            raise not_found(request.kind.group, request.kind.plural, request.name)
        return found

    def create(
        self, request: Request, body: Body, owners: tuple[fieldsets.Owner, ...] | None = None
    ) -> Snapshot:
        kind = request.kind
        body = self._typed(request, body)
        meta = metadata.initial(kind, request.namespace, body.get("metadata") or {})
        body = {**body, "metadata": meta}
        self._namespace_open(request, meta.get("name", ""))
        if kind.has_status and not builtin.keeps_status(kind):
            body.pop("status", None)
        errors = metadata.check(kind, meta)
        if not errors and self.store.get(kind, meta.get("namespace", ""), meta["name"]):
            raise already_exists(kind.group, kind.plural, meta["name"])
        body = self._checked(request, body, None, errors)
        for admit in self.admissions:
            admit(request, body)
        if owners is None:
            paths = frozenset(fieldsets.paths_of(body, kind.schema(request.version)))
            writer = request.owner("Update")
            owners = fieldsets.updated((), writer, set(paths), set())
        return self._store(request, body, owners)

    def update(self, request: Request, body: Body) -> Snapshot:
        old = self.existing(request)
        kind, body = request.kind, self._typed(request, body)
        meta = body.get("metadata") or {}
        if kind.custom and not meta.get("resourceVersion"):
            error = FieldError(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            wrong = invalid(kind.group, kind.plural, request.name, [error])
            raise wrong
        if meta.get("name") not in (None, request.name):
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({request.name})"
            )
        return self.replace(request, old, body)

    def patch(self, request: Request, change: Callable[[Body], Body]) -> Snapshot:
        old = self.existing(request)
        body = change(old.full(request.version))
        body.pop("apiVersion", None)
        body.pop("kind", None)
        return self.replace(request, old, body)

    def apply(self, request: Request, body: Body) -> Snapshot:
        kind, body = request.kind, self._typed(request, body)
        given = body.get("metadata") or {}
        meta = {k: v for k, v in given.items() if k not in fieldsets.UNOWNED or k == "name"}
        body = self._prune(request, {**body, "metadata": meta})
        shape, writer = kind.schema(request.version), request.owner("Apply")
        old = self.store.get(kind, request.namespace, request.name)
        if old is None:
            if request.subresource:
                raise not_found(kind.group, kind.plural, request.name)
            body = {**body, "metadata": {**meta, "name": request.name}}
            paths = frozenset(fieldsets.paths_of(body, shape))
            mine = fieldsets.with_paths(writer, paths)
            head = {"apiVersion": kind.api_version(request.version), "kind": kind.kind}
            return self.create(request, head | body, (mine,))
        self._same_version(request, old, given)
        if request.on_status:
            body = {k: v for k, v in body.items() if k in ("status", "metadata")}
        elif kind.has_status:
            body.pop("status", None)
        merged, owners = apply.applied(
            old.body, body, old.owners, writer, shape, force=request.force
        )
        return self.replace(request, old, merged, owners)

    def replace(
        self,
        request: Request,
        old: Snapshot,
        body: Body,
        owners: tuple[fieldsets.Owner, ...] | None = None,
    ) -> Snapshot:
        """The new state of an object that is there; the same one when nothing changes."""
        kind = request.kind
        given = body.get("metadata") or {}
        self._same_version(request, old, given)
        meta = self._metadata(request, old, given)
        body = self._parts(request, old, {**body, "metadata": meta})
        body = self._checked(request, body, old, metadata.check(kind, meta))
        for admit in self.update_admissions:
            admit(request, old, body)
        if kind.counted and any(
            body.get(key) != old.body.get(key)
            for key in body.keys() | old.body.keys()
            if key not in ("metadata", "status")
        ):
            number = old.body["metadata"].get("generation", 0) + 1
            body = {**body, "metadata": {**body["metadata"], "generation": number}}
        changed, gone = fieldsets.changes(old.body, body, kind.schema(request.version))
        if owners is None:
            owners = self._owners(old, given)
            owners = fieldsets.updated(owners, request.owner("Update"), changed, gone)
        if not changed and not gone and _same_claims(owners, old.owners):
            return old
        return self._store(request, body, owners)

    def _owners(self, old: Snapshot, given: Body) -> tuple[fieldsets.Owner, ...]:
        """As a client set them, which hands fields from one way of writing to another."""
        entries = given.get("managedFields")
        same = entries is None or entries == [owner.entry for owner in old.owners]
        return old.owners if same else fieldsets.written(entries)

    def _typed(self, request: Request, body: Body) -> Body:
        """Without apiVersion and kind, which must be those of the path."""
        kind, expected = request.kind, request.kind.api_version(request.version)
        stated, name = body.get("apiVersion"), body.get("kind")
        if kind.custom and not name:
            raise bad_request("Object 'Kind' is missing in the body of the request")
        if stated not in (None, expected):
            extra = sorted(key for key in body if key not in schema.ROOT)
            raise bad_request(
                f"the API version in the data ({stated}) does not match the expected API version "
                f"({expected})",
                warnings=tuple(f'unknown field "{key}"' for key in extra),
            )
        if name not in (None, kind.kind):
            own = (body.get("metadata") or {}).get("name", "")
            text = f'Invalid value: "{name}": must be {kind.kind}'
            error = FieldError("kind", "FieldValueInvalid", text)
            raise invalid(kind.group, str(name), own, [error])
        return {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}

    def _namespace_open(self, request: Request, name: str) -> None:
        if not request.kind.namespaced:
            return
        space = self.store.get(NAMESPACE, "", request.namespace)
        if space is None:
            raise not_found("", "namespaces", request.namespace)
        if space.body["status"]["phase"] != "Terminating":
            return
        text = f"namespace {request.namespace} is being terminated"
        detail = f"unable to create new content in {text.replace(' is ', ' because it is ')}"
        error = forbidden(request.kind.group, request.kind.plural, name, detail)
        assert error.details is not None
        error.details["causes"] = [
            {"reason": "NamespaceTerminating", "message": text, "field": "metadata.namespace"}
        ]
        raise error

    def _same_version(self, request: Request, old: Snapshot, given: Body) -> None:
        stated, uid = given.get("resourceVersion"), given.get("uid")
        where = (request.kind.group, request.kind.plural, request.name)
        if stated and stated != str(old.version):
            raise conflict(*where)
        if uid and uid != old.uid:
            raise conflict(*where, f"Precondition failed: UID in precondition: {uid}")

    def _metadata(self, request: Request, old: Snapshot, given: Body) -> Body:
        """What was sent, but never what only the server may set."""
        before = old.body["metadata"]
        if request.on_status:
            if request.kind.kind not in STATUS_METADATA:
                return dict(before)
            given = {k: given[k] for k in ("labels", "annotations") if k in given}
            kept = {k: v for k, v in before.items() if k not in ("labels", "annotations")}
            return kept | given
        meta = {k: v for k, v in given.items() if k not in fieldsets.UNOWNED and v is not None}
        own = {k: v for k, v in before.items() if k in fieldsets.UNOWNED}
        return {k: v for k, v in meta.items() if v not in ({}, [])} | own

    def _parts(self, request: Request, old: Snapshot, body: Body) -> Body:
        """The status can be written by its own path only, and nothing else by that path."""
        if not request.kind.has_status:
            return body
        mine = body if request.on_status else old.body
        rest = old.body if request.on_status else body
        parts = {key: value for key, value in rest.items() if key not in ("status", "metadata")}
        status = {"status": mine["status"]} if "status" in mine else {}
        return {"metadata": body["metadata"], **parts, **status}

    def _prune(self, request: Request, body: Body) -> Body:
        if not request.kind.custom:
            return body
        unknown: list[str] = []
        kept = schema.prune_object(body, request.kind.schema(request.version), unknown)
        if unknown and request.validation == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            kind = request.kind.kind
            raise bad_request(
                f'{kind} in version "{request.version}" cannot be handled as a {kind}: '
                f"strict decoding error: {listed}"
            )
        if request.validation == "Warn":
            texts = [f'unknown field "{path}"' for path in unknown]
            request.warnings += [text for text in texts if text not in request.warnings]
        return kept

    def _checked(
        self, request: Request, body: Body, old: Snapshot | None, errors: list[FieldError]
    ) -> Body:
        kind = request.kind
        if kind.custom:
            body, shape = self._custom(request, body, old), kind.schema(request.version)
            errors = errors + schema.check(body, old.body if old else None, shape)
            errors = schema.closed(errors)
        elif not errors:
            errors = builtin.prepare(kind, body, self.store, is_new=old is None)
        if errors:
            name = body["metadata"].get("name", "")
            raise invalid(kind.group, kind.kind, name, errors)
        return body

    def _custom(self, request: Request, body: Body, old: Snapshot | None) -> Body:
        """Pruned and with defaults, where it is not the very same as before."""
        before = old.body if old else {}
        shape = request.kind.schema(request.version)
        same = {k: v for k, v in body.items() if k != "metadata" and before.get(k) is v}
        rest = {key: value for key, value in body.items() if key not in same}
        body = schema.default(self._prune(request, rest), shape)
        return body | same

    def _store(self, request: Request, body: Body, owners: tuple[fieldsets.Owner, ...]) -> Snapshot:
        meta = dict(body["metadata"])
        meta.pop("managedFields", None)
        if not request.dry_run:
            meta["resourceVersion"] = str(self.store.next_version())
        if owners:
            meta["managedFields"] = [owner.entry for owner in owners]
        snapshot = Snapshot(request.kind, {**body, "metadata": meta}, owners)
        if request.dry_run:
            return snapshot
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self.release(snapshot)
        self.store.put(snapshot)
        return snapshot


def _same_claims(a: tuple[fieldsets.Owner, ...], b: tuple[fieldsets.Owner, ...]) -> bool:
    return {owner.key: owner.paths for owner in a} == {owner.key: owner.paths for owner in b}


__all__ = ["Admission", "ApiError", "Request", "Writes"]
