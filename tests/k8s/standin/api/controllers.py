"""What a controller manager does: garbage collection and the end of namespaces."""

from __future__ import annotations

import asyncio

from tests.k8s.standin.api.state import State
from tests.k8s.standin.objects.deletes import FOREGROUND, ORPHAN
from tests.k8s.standin.objects.kinds import NAMESPACE, POD, QUOTA, SERVICE_ACCOUNT
from tests.k8s.standin.objects.store import Change, Snapshot
from tests.k8s.standin.objects.writes import Request

ROUND_S = 0.05


class Controllers:
    """Looks at what changed, a moment later."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.pending: dict[str, Snapshot] = {}
        self.gone: dict[str, None] = {}
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.state.store.listeners.append(self._see)
        self.pending = dict(self.state.store.uids)
        self.wake.set()
        self.task = asyncio.create_task(self._run())

    def _see(self, change: Change) -> None:
        meta, uid = change.after.body["metadata"], change.after.uid
        if change.type == "DELETED":
            self.gone[uid] = None
            for reference in meta.get("ownerReferences") or ():
                if owner := self.state.store.uids.get(reference.get("uid", "")):
                    self.pending[owner.uid] = owner
        elif (
            meta.get("deletionTimestamp")
            or meta.get("ownerReferences")
            or change.after.kind in (NAMESPACE, QUOTA)
        ):
            self.pending[uid] = change.after
        if change.type != "MODIFIED" or change.after.kind is POD:
            for quota in self.state.store.list(QUOTA, meta.get("namespace", "-")):
                self.pending[quota.uid] = quota
        self.wake.set()

    async def _run(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            await asyncio.sleep(ROUND_S)
            gone, self.gone = self.gone, {}
            pending, self.pending = self.pending, {}
            for uid in gone:
                for dependent in list(self.state.store.dependents_of(uid)):
                    self._abandoned(dependent)
            for uid in pending:
                if (current := self.state.store.uids.get(uid)) is not None:
                    self._look(current)

    def _look(self, item: Snapshot) -> None:
        meta = item.body["metadata"]
        if item.kind is NAMESPACE:
            self._namespace(item)
            return
        if item.kind is QUOTA:
            self._quota(item)
        finalizers = meta.get("finalizers") or []
        if meta.get("deletionTimestamp") and FOREGROUND in finalizers:
            self._foreground(item)
        elif meta.get("deletionTimestamp") and ORPHAN in finalizers:
            for dependent in list(self.state.store.dependents_of(item.uid)):
                self._disown(dependent, item.uid)
            self._finalized(item, ORPHAN)
        elif meta.get("ownerReferences"):
            self._abandoned(item)

    def _quota(self, quota: Snapshot) -> None:
        status = self.state.quotas.status(quota)
        if status != quota.body.get("status"):
            request = self._request(quota)
            request.subresource = "status"
            self.state.writes.patch(request, lambda body: {**body, "status": status})

    def _abandoned(self, item: Snapshot) -> None:
        """Deletes an object none of whose owners is there."""
        references = item.body["metadata"].get("ownerReferences") or []
        uids = self.state.store.uids
        if references and not any(ref.get("uid") in uids for ref in references):
            self._delete(item, {})

    def _foreground(self, item: Snapshot) -> None:
        blocking = False
        for dependent in list(self.state.store.dependents_of(item.uid)):
            references = dependent.body["metadata"]["ownerReferences"]
            blocking |= any(
                ref.get("uid") == item.uid and ref.get("blockOwnerDeletion") for ref in references
            )
            self._delete(dependent, {"propagationPolicy": "Foreground"})
        left = list(self.state.store.dependents_of(item.uid))
        if not left or not blocking:
            self._finalized(item, FOREGROUND)

    def _finalized(self, item: Snapshot, finalizer: str) -> None:
        def without(body: dict) -> dict:
            meta = body["metadata"]
            left = [name for name in meta.get("finalizers", []) if name != finalizer]
            return {**body, "metadata": {**meta, "finalizers": left}}

        if item.uid in self.state.store.uids:
            self.state.writes.patch(self._request(item), without)

    def _disown(self, item: Snapshot, uid: str) -> None:
        def without(body: dict) -> dict:
            meta = body["metadata"]
            left = [ref for ref in meta["ownerReferences"] if ref.get("uid") != uid]
            return {**body, "metadata": {**meta, "ownerReferences": left}}

        self.state.writes.patch(self._request(item), without)

    def _namespace(self, space: Snapshot) -> None:
        name = space.body["metadata"]["name"]
        if space.body["status"]["phase"] != "Terminating":
            if self.state.store.get(SERVICE_ACCOUNT, name, "default") is None:
                self.state.make(SERVICE_ACCOUNT, {"metadata": {"name": "default"}}, name)
            return
        left = 0
        for kind in list(self.state.store.tables):
            if kind.namespaced:
                for item in self.state.store.list(kind, name):
                    self._delete(item, {})
                left += len(self.state.store.list(kind, name))
        if left:
            self.pending[space.uid] = space
            asyncio.get_running_loop().call_later(0.2, self.wake.set)
        else:
            self.state.store.remove(space)

    def _delete(self, item: Snapshot, options: dict) -> None:
        if item.uid in self.state.store.uids:
            self.state.deletes.delete(self._request(item), options)

    @staticmethod
    def _request(item: Snapshot) -> Request:
        namespace, name = item.key
        return Request(item.kind, item.kind.storage, namespace, name, manager="controllers")
