"""What the cluster routes do: find templates, start operations, one at a time for a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmops_kernel import api
from llmops_kernel.clusters.actions import refuse_impossible
from llmops_kernel.clusters.provider import ClusterAction, ClusterInfo, Progress
from llmops_kernel.clusters.providers import provider_for
from llmops_kernel.config.cluster import (
    BUILT_IN,
    FOLDER,
    AnyTemplate,
    ClusterTemplate,
    is_template,
    load_cluster_template,
    shipped,
    template_from,
)
from llmops_kernel.config.template import cluster_template
from llmops_kernel.config.yaml_source import parse_yaml
from llmops_kernel.errors import ClusterStateError, ConfigError
from llmops_kernel.server.base import RequestError, below
from llmops_kernel.server.cluster_feed import KINDS, ClustersFeed
from llmops_kernel.server.operations import Operations, Work
from llmops_kernel.server.wire.clusters import ClusterRow, ScaleBody, TemplateInfo, UpBody
from llmops_kernel.server.wire.common import OperationInfo, trouble

_LOOK_S = 6.0
"""For one list that is asked for once; the live feed tells slow clusters later."""
_PATTERNS = (f"{FOLDER}/*.yaml", f"{FOLDER}/*.yml", "*.cluster.yaml", "*.cluster.yml")
_MAX_TEMPLATE_BYTES = 256 * 1024
_TYPED = "the form"


def list_clusters(operations: Operations) -> list[ClusterRow]:
    feed = ClustersFeed(operations, patience_s=_LOOK_S)
    try:
        feed.poll()
        return feed.rows()
    finally:
        feed.close()


def list_templates(root: Path) -> list[TemplateInfo]:
    """Built-in ones first, then files below Jupyter's root and the folder it was started in.

    Last the shipped ones that have no file of that name there.
    """
    found: dict[str, TemplateInfo] = {}
    for path in _files(root):
        name = _name_of(path)
        if name not in found and path.stat().st_size <= _MAX_TEMPLATE_BYTES:
            found[name] = _described(name, path, root)
    built_in = [
        TemplateInfo(name=name, text=cluster_template(name=name))
        for name in BUILT_IN
        if name not in found
    ]
    examples = [
        TemplateInfo(name=name, text=path.read_text(encoding="utf-8"))
        for name, path in shipped().items()
        if name not in found
    ]
    in_order = sorted(found, key=lambda name: (name not in BUILT_IN, name))
    return [*built_in, *(found[name] for name in in_order), *examples]


def read_template(body: UpBody, root: Path) -> tuple[AnyTemplate, Path | None]:
    """And the file it came from. Raises ConfigError, RequestError."""
    if body.yaml is not None:
        return template_from(parse_yaml(body.yaml, file=_TYPED)), None
    path = below(root, body.path) if body.path is not None else _named(body.template or "", root)
    return (load_cluster_template(path), path) if path else (ClusterTemplate(), None)


def start_up(operations: Operations, template: AnyTemplate, path: Path | None) -> OperationInfo:
    _refuse_second(operations, template.name)

    def work(tell: Progress) -> dict[str, Any]:
        provider = provider_for(template)
        return _told(provider.up(template, template_path=path, progress=tell, wait=False))

    return operations.start("up", template.name, work)


def refuse_now(name: str, action: ClusterAction) -> None:
    """Before an operation is started: the cluster must be there and in a fitting state."""
    refuse_impossible(api.cluster(name).info, action)


def start_action(
    operations: Operations,
    name: str,
    action: ClusterAction,
    *,
    numbers: ScaleBody | None = None,
    force: bool = False,
) -> OperationInfo:
    """`force`: go on when the history of its runs cannot be saved."""
    _refuse_second(operations, name)
    work = _work(name, action, numbers or ScaleBody(), force=force)
    return operations.start(str(action), name, work)


def _work(name: str, action: ClusterAction, numbers: ScaleBody, *, force: bool) -> Work:
    def work(tell: Progress) -> dict[str, Any]:
        cluster = api.cluster(name)
        if action is ClusterAction.DELETE:
            tell("Stopping its processes")
            cluster.delete(force=force)
            return {}
        if action is ClusterAction.SUSPEND:
            tell("Stopping its processes")
            cluster.suspend(force=force)
        elif action is ClusterAction.RESUME:
            cluster.resume(progress=tell)
        else:
            cluster.scale(
                num_cpus=numbers.num_cpus,
                num_gpus=numbers.num_gpus,
                workers=numbers.workers or None,
                progress=tell,
            )
        return _told(cluster.info)

    return work


def _told(info: ClusterInfo) -> dict[str, Any]:
    return {"state": str(info.state), "message": info.message}


def _refuse_second(operations: Operations, name: str) -> None:
    for kind in KINDS:
        if any(info.what == name for info in operations.running(kind)):
            raise ClusterStateError(
                f"Cluster {name!r} is busy: `{kind}` is under way",
                remedy="wait until that has ended; its progress is in the list of clusters",
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


def _named(name: str, root: Path) -> Path | None:
    for path in _files(root):
        if _name_of(path) == name:
            return path
    if name in BUILT_IN:
        return None
    if name in shipped():
        return shipped()[name]
    known = ", ".join(sorted({*BUILT_IN, *shipped(), *map(_name_of, _files(root))}))
    raise RequestError(
        f"No cluster template has the name {name!r}; known: {known}",
        remedy=f"write {FOLDER}/NAME.yaml below the Jupyter root folder, or use 'local'",
        status=404,
    )


def _described(name: str, path: Path, root: Path) -> TemplateInfo:
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        load_cluster_template(path)
    except ConfigError as error:
        problems = tuple(trouble(error).problems)
        return TemplateInfo(name=name, path=shown, text=text, problems=problems)
    return TemplateInfo(name=name, path=shown, text=text)
