"""Work of the cluster routes: list templates, start operations, one at a time per cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmops_kernel.config.assist.template import cluster_template
from llmops_kernel.config.models.cluster import AnyTemplate, ClusterTemplate
from llmops_kernel.config.reading.document import parse_yaml
from llmops_kernel.config.reading.templates import (
    BUILT_IN,
    FOLDER,
    is_template,
    load_cluster_template,
    shipped,
    template_from,
)
from llmops_kernel.errors import ClusterStateError, ConfigError
from llmops_kernel.jobs.history import Way
from llmops_kernel.providers.capabilities import require_possible
from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo, ClusterSize, Progress
from llmops_kernel.server.base import LLMOpsHandler, RequestError, below, protected
from llmops_kernel.server.cluster_feed import KINDS, ClustersFeed
from llmops_kernel.server.operations import Operations, Work
from llmops_kernel.server.wire.clusters import (
    ClusterList,
    ClusterRow,
    EmptyBody,
    KeepBody,
    ScaleBody,
    TemplateInfo,
    UpBody,
)
from llmops_kernel.server.wire.common import OperationInfo, trouble
from llmops_kernel.services import clusters
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster, find

_LOOK_S = 6.0
"""How long a single list waits for slow clusters; the live feed reports them later."""
_PATTERNS = (f"{FOLDER}/*.yaml", f"{FOLDER}/*.yml", "*.cluster.yaml", "*.cluster.yml")
_MAX_TEMPLATE_BYTES = 256 * 1024
_TYPED = "the form"


def list_clusters(operations: Operations, backend: Backend) -> list[ClusterRow]:
    """Return all clusters, after waiting a little for slow ones."""
    feed = ClustersFeed(operations, providers=backend.providers, patience_s=_LOOK_S)
    try:
        feed.poll()
        return feed.rows()
    finally:
        feed.close()


def list_templates(root: Path) -> list[TemplateInfo]:
    """Return built-in templates, then files below Jupyter's root and the working folder.

    Shipped templates without a file of that name come last.
    """
    templates: dict[str, TemplateInfo] = {}
    for path in _files(root):
        name = _name_of(path)
        if name not in templates and path.stat().st_size <= _MAX_TEMPLATE_BYTES:
            templates[name] = _described(name, path, root)
    built_in = [
        TemplateInfo(name=name, text=cluster_template(name=name))
        for name in BUILT_IN
        if name not in templates
    ]
    examples = [
        TemplateInfo(name=name, text=path.read_text(encoding="utf-8"))
        for name, path in shipped().items()
        if name not in templates
    ]
    in_order = sorted(templates, key=lambda name: (name not in BUILT_IN, name))
    return [*built_in, *(templates[name] for name in in_order), *examples]


def read_template(body: UpBody, root: Path) -> tuple[AnyTemplate, Path | None]:
    """Return the requested template and its file. Raises ConfigError, RequestError."""
    if body.yaml is not None:
        return template_from(parse_yaml(body.yaml, file=_TYPED)), None
    path = (
        below(root, body.path)
        if body.path is not None
        else template_file(body.template or "", root)
    )
    return (load_cluster_template(path), path) if path else (ClusterTemplate(), None)


def start_up(
    operations: Operations, backend: Backend, template: AnyTemplate, path: Path | None
) -> OperationInfo:
    """Start a cluster in the background. Raises ClusterStateError while it is busy."""
    _refuse_second(operations, template.name)

    def work(report: Progress) -> dict[str, Any]:
        info = clusters.up(template, path=path, wait=False, progress=report, backend=backend)
        return _outcome(info)

    return operations.start("up", template.name, work)


def refuse_now(backend: Backend, name: str, action: ClusterAction) -> None:
    """Raise ClusterNotFoundError or ClusterStateError when the action cannot be done now."""
    require_possible(clusters.find(name, backend=backend).info, action)


def start_action(
    operations: Operations,
    backend: Backend,
    name: str,
    action: ClusterAction,
    *,
    numbers: ScaleBody | None = None,
    force: bool = False,
) -> OperationInfo:
    """Start an action in the background; `force`: also when its runs cannot be archived."""
    _refuse_second(operations, name)
    work = _work(backend, name, action, numbers or ScaleBody(), force=force)
    return operations.start(str(action), name, work)


def _work(
    backend: Backend, name: str, action: ClusterAction, numbers: ScaleBody, *, force: bool
) -> Work:
    def work(report: Progress) -> dict[str, Any]:
        cluster = clusters.find(name, backend=backend)
        if action in (ClusterAction.DELETE, ClusterAction.SUSPEND):
            report("Stopping its processes")
            method: Way = "delete" if action is ClusterAction.DELETE else "suspend"
            clusters.stop(cluster, method, force=force)
            return {} if action is ClusterAction.DELETE else _outcome(cluster.info)
        if action is ClusterAction.RESUME:
            info = clusters.resume(cluster, wait=False, force=force, progress=report)
        else:
            size = ClusterSize(**numbers.model_dump())
            info = clusters.scale(cluster, size, wait=False, force=force, progress=report)
        return _outcome(info)

    return work


def _outcome(info: ClusterInfo) -> dict[str, Any]:
    return {"state": str(info.state), "message": info.message}


def _refuse_second(operations: Operations, name: str) -> None:
    for kind in KINDS:
        if any(info.what == name for info in operations.running(kind)):
            raise ClusterStateError(
                f"Cluster {name!r} is busy: `{kind}` is in progress",
                remedy="wait until it has finished; the list of clusters shows its progress",
            )


def _files(root: Path) -> Iterable[Path]:
    # Both may be the same folder. A link out of the root is not followed from the browser.
    for folder in dict.fromkeys((root, Path.cwd().resolve())):
        for pattern in _PATTERNS:
            for path in sorted(folder.glob(pattern)):
                if is_template(path) and path.resolve().is_relative_to(folder):
                    yield path


def _name_of(path: Path) -> str:
    return path.name.split(".")[0]


def template_file(name: str, root: Path) -> Path | None:
    for path in _files(root):
        if _name_of(path) == name:
            return path
    if name in BUILT_IN:
        return None
    if name in shipped():
        return shipped()[name]
    names = ", ".join(sorted({*BUILT_IN, *shipped(), *map(_name_of, _files(root))}))
    raise RequestError(
        f"No cluster template has the name {name!r}; known: {names}",
        remedy=f"write {FOLDER}/NAME.yaml below the Jupyter root folder, or use 'local'",
        status=404,
    )


def _described(name: str, path: Path, root: Path) -> TemplateInfo:
    shown_path = path.relative_to(root).as_posix() if path.is_relative_to(root) else None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        load_cluster_template(path)
    except ConfigError as error:
        problems = tuple(trouble(error).problems)
        return TemplateInfo(name=name, path=shown_path, text=text, problems=problems)
    return TemplateInfo(name=name, path=shown_path, text=text)


# --- Routes of clusters and their templates ---


class ClusterRequest(LLMOpsHandler):
    """A request about one cluster."""

    def cluster(self, name: str) -> Cluster:
        """Return a known cluster. Raises ClusterNotFoundError."""
        return find(name, backend=self.manager.backend)


class ClustersHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        rows = await self.ask(list_clusters, self.manager.operations, self.manager.backend)
        self.reply(ClusterList(clusters=rows, now_s=time.time()))

    @protected
    async def post(self) -> None:
        body = self.body(UpBody)
        template, path = await self.run(read_template, body, self.manager.root_dir)
        self.reply(
            start_up(self.manager.operations, self.manager.backend, template, path), status=202
        )


class TemplatesHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(await self.run(list_templates, self.manager.root_dir))


class ClusterHandler(ClusterRequest):
    @protected
    async def get(self, name: str) -> None:
        self.reply(await self.ask(lambda: self.cluster(name).info))

    @protected
    async def delete(self, name: str) -> None:
        self.body(EmptyBody)
        await self.ask(refuse_now, self.manager.backend, name, ClusterAction.DELETE)
        started = start_action(
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
        requested = _action(action)
        if requested is ClusterAction.DELETE:
            raise RequestError("A cluster is deleted by DELETE, not POST", status=405)
        numbers = self.body(ScaleBody) if requested is ClusterAction.SCALE else None
        if numbers is None:
            self.body(EmptyBody)
        elif numbers.is_empty:
            raise RequestError("give num_cpus, num_gpus or workers", status=422)
        await self.ask(refuse_now, self.manager.backend, name, requested)
        started = start_action(
            self.manager.operations,
            self.manager.backend,
            name,
            requested,
            numbers=numbers,
            force=_forced(self),
        )
        self.reply(started, status=202)


class KeepHandler(ClusterRequest):
    @protected
    async def post(self, name: str) -> None:
        body = self.body(KeepBody)
        self.reply(await self.ask(lambda: self.cluster(name).provider.keep(name, for_s=body.for_s)))


def _forced(handler: LLMOpsHandler) -> bool:
    """Return whether to continue when the history of its runs cannot be archived."""
    return handler.query("force", "0") in ("1", "true")


def _action(text: str) -> ClusterAction:
    try:
        return ClusterAction(text)
    except ValueError:
        names = ", ".join(ClusterAction)
        raise RequestError(f"There is no action {text!r}; known: {names}", status=422) from None


ROUTES = [
    (r"clusters", ClustersHandler),
    (r"templates", TemplatesHandler),
    (r"clusters/([^/]+)", ClusterHandler),
    (r"clusters/([^/]+)/preview", PreviewHandler),
    (r"clusters/([^/]+)/keep", KeepHandler),
    (r"clusters/([^/]+)/([a-z]+)", ActionHandler),
]
