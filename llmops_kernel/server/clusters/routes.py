"""Routes of clusters and their templates. Handlers parse, call and answer."""

from __future__ import annotations

import time

from llmops_kernel.providers.protocol import ClusterAction
from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.clusters import work as work
from llmops_kernel.server.wire.clusters import (
    ClusterList,
    EmptyBody,
    KeepBody,
    ScaleBody,
    UpBody,
)
from llmops_kernel.services.clusters import ClusterAccess, find


class ClusterRequest(LLMOpsHandler):
    """A request about one cluster."""

    def cluster(self, name: str) -> ClusterAccess:
        """Return a known cluster. Raises ClusterNotFoundError."""
        return find(name, backend=self.manager.backend)


class ClustersHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        rows = await self.ask(work.list_clusters, self.manager.operations, self.manager.backend)
        self.reply(ClusterList(clusters=rows, now_s=time.time()))

    @protected
    async def post(self) -> None:
        body = self.body(UpBody)
        template, path = await self.run(work.read_template, body, self.manager.root_dir)
        self.reply(
            work.start_up(self.manager.operations, self.manager.backend, template, path), status=202
        )


class TemplatesHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(await self.run(work.list_templates, self.manager.root_dir))


class ClusterHandler(ClusterRequest):
    @protected
    async def get(self, name: str) -> None:
        self.reply(await self.ask(lambda: self.cluster(name).info))

    @protected
    async def delete(self, name: str) -> None:
        self.body(EmptyBody)
        await self.ask(work.refuse_now, self.manager.backend, name, ClusterAction.DELETE)
        started = work.start_action(
            self.manager.operations,
            self.manager.backend,
            name,
            ClusterAction.DELETE,
            force=_forced(self),
        )
        self.reply(started, status=202)


class PreviewHandler(ClusterRequest):
    @protected
    async def get(self, name: str) -> None:
        action = _action(self.query("action"))
        self.reply(await self.ask(lambda: self.cluster(name).preview(action)))


class ActionHandler(LLMOpsHandler):
    @protected
    async def post(self, name: str, action: str) -> None:
        wanted = _action(action)
        if wanted is ClusterAction.DELETE:
            raise RequestError("A cluster is deleted by DELETE, not POST", status=405)
        numbers = self.body(ScaleBody) if wanted is ClusterAction.SCALE else None
        if numbers is None:
            self.body(EmptyBody)
        elif numbers.is_empty:
            raise RequestError("give num_cpus, num_gpus or workers", status=422)
        await self.ask(work.refuse_now, self.manager.backend, name, wanted)
        started = work.start_action(
            self.manager.operations,
            self.manager.backend,
            name,
            wanted,
            numbers=numbers,
            force=_forced(self),
        )
        self.reply(started, status=202)


class KeepHandler(ClusterRequest):
    @protected
    async def post(self, name: str) -> None:
        body = self.body(KeepBody)
        self.reply(await self.ask(lambda: self.cluster(name).keep(for_s=body.for_s)))


def _forced(handler: LLMOpsHandler) -> bool:
    """Return whether to continue when the history of its runs cannot be archived."""
    return handler.query("force", "0") in ("1", "true")


def _action(text: str) -> ClusterAction:
    try:
        return ClusterAction(text)
    except ValueError:
        known = ", ".join(ClusterAction)
        raise RequestError(f"There is no action {text!r}; known: {known}", status=422) from None


ROUTES = [
    (r"clusters", ClustersHandler),
    (r"templates", TemplatesHandler),
    (r"clusters/([^/]+)", ClusterHandler),
    (r"clusters/([^/]+)/preview", PreviewHandler),
    (r"clusters/([^/]+)/keep", KeepHandler),
    (r"clusters/([^/]+)/([a-z]+)", ActionHandler),
]
