"""Cluster templates for Kubernetes: write one, render its manifest, compare and apply it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.config.assist.template import cluster_template
from llmops_kernel.config.models.cluster import TEMPLATES
from llmops_kernel.config.problems import did_you_mean, listed
from llmops_kernel.config.reading.document import parse_yaml
from llmops_kernel.config.reading.templates import (
    FOLDER,
    load_cluster_template,
    shipped,
    template_from,
)
from llmops_kernel.errors import ConfigError
from llmops_kernel.jobs.history import archive_runs
from llmops_kernel.providers.capabilities import (
    EditEffect,
    EditKind,
    RightState,
    editor_of,
    require_applicable,
    rights_of,
)
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.new_file import write_user_file


@dataclass(frozen=True)
class Rendered:
    """A manifest as YAML."""

    yaml: str
    accepted_by: str = ""
    """Context and namespace whose API server accepted it in a dry run; empty without one."""


def render(
    template: str | Path,
    *,
    namespace: str | None = None,
    validate: bool = False,
    with_companions: bool = True,
    backend: Backend | None = None,
) -> Rendered:
    """Render the manifest that `up` would create. The same template gives the same text.

    `validate` requires that the API server accepts it. Raises ConfigError, ClusterStateError
    for a provider without manifests, and an LLMOpsError with every field that is refused.
    """
    loaded = load_cluster_template(template)
    editor = editor_of((backend or current()).provider_for(loaded))
    if validate:
        manifest, place = editor.dry_run(loaded, namespace=namespace)
    else:
        manifest, place = editor.render(loaded, namespace=namespace), ""
    return Rendered(manifest.to_yaml(with_companions=with_companions), place)


def rights(
    template: str | Path, *, namespace: str | None = None, backend: Backend | None = None
) -> tuple[Sequence[RightState], str]:
    """Return the rights that the clusters of a template need, and where they were asked for."""
    loaded = load_cluster_template(template)
    provider = rights_of((backend or current()).provider_for(loaded))
    return provider.rights(loaded, namespace=namespace)


def roles(
    template: str | Path,
    *,
    subject: str,
    namespace: str | None = None,
    cluster_wide: bool = False,
    backend: Backend | None = None,
) -> str:
    """Return the manifests that grant these rights. Asks no server. Raises ConfigError."""
    loaded = load_cluster_template(template)
    provider = rights_of((backend or current()).provider_for(loaded))
    return provider.roles(loaded, subject=subject, namespace=namespace, cluster_wide=cluster_wide)


def cluster_of(template: str | Path, *, backend: Backend | None = None) -> Cluster:
    """Return the cluster that a template describes. Raises ConfigError."""
    loaded, backend = load_cluster_template(template), backend or current()
    return Cluster(loaded.name, provider=backend.provider_for(loaded), backend=backend)


def effect(cluster: Cluster, template: str | Path | None = None) -> EditEffect:
    """Return what `apply` would change: restarts, stopped jobs.

    `template` defaults to the one with the cluster's own name.
    """
    loaded = load_cluster_template(template or _own_name(cluster))
    return editor_of(cluster.provider).effect(loaded, name=cluster.name)


def require_possible(cluster: Cluster, effect: EditEffect, *, force: bool) -> None:
    """Raise ClusterStateError for what `apply` refuses, before anybody is asked to confirm it."""
    require_applicable(effect, cluster=cluster.name, force=force)


def apply(
    cluster: Cluster,
    template: str | Path | None = None,
    *,
    force: bool = False,
    lose_history: bool = False,
) -> ClusterInfo:
    """Change a cluster to what a template says. Where that ends its head, runs are archived first.

    `force` takes ownership of fields that other clients have set. Raises HistoryError when runs
    cannot be archived; `lose_history` continues without them.
    """
    loaded = load_cluster_template(template or _own_name(cluster))
    editor = editor_of(cluster.provider)
    effect = editor.effect(loaded, name=cluster.name)
    require_possible(cluster, effect, force=force)
    if effect.kind is EditKind.RESTART:
        archive_runs(
            cluster.provider,
            cluster.name,
            store=cluster.backend.store,
            force=lose_history,
            without="`--lose-history` (`lose_history=True`)",
        )
    return editor.apply(loaded, name=cluster.name, force=force)


def new_template(kind: str, *, name: str, file: str) -> str:
    """Return the text of a new template: of a provider, or a copy of a shipped one.

    Raises ConfigError for an unknown kind or a name that no cluster can have.
    """
    text = _text_of(kind, name)
    template_from(parse_yaml(text, file=file))
    return text


def init(name: str, *, kind: str = "kuberay", force: bool = False) -> Path:
    """Write a cluster template, with comments; return its path.

    `name` is that of the template, which is written to `cluster_templates/`, or of its file.
    `kind` is what to start from: `kuberay` and `local` explain every field; or the name of a
    shipped template. Raises ConfigError if the file exists, unless `force`.
    """
    path = Path(name) if Path(name).suffix in (".yaml", ".yml") else Path(FOLDER, f"{name}.yaml")
    text = new_template(kind, name=path.name.split(".")[0], file=str(path))
    write_user_file(path, text, force=force, with_folder=True)
    return path


def _own_name(cluster: Cluster) -> str:
    return cluster.name.rpartition("/")[2]


def _text_of(kind: str, name: str) -> str:
    if kind in TEMPLATES:
        return cluster_template(provider=kind, name=name)
    if kind not in shipped():
        choices = [*TEMPLATES, *shipped()]
        raise ConfigError(
            f"There is no cluster template {kind!r} to start from",
            remedy=did_you_mean(kind, choices) or f"one of {listed(choices)}",
        )
    text = shipped()[kind].read_text(encoding="utf-8")
    # The name also occurs where pods are selected by the label of their cluster.
    return re.sub(rf"^(name:|.*\bray\.io/cluster:) {kind}\b", rf"\1 {name}", text, flags=re.M)
