"""Asks the API server whether it would take a template, without making anything."""

from __future__ import annotations

from collections.abc import Callable

from llmops_kernel.clusters.kuberay import features, kubeconfig
from llmops_kernel.clusters.kuberay.kube import Kube, KubeError, open_kube
from llmops_kernel.clusters.kuberay.kube_paths import object_path
from llmops_kernel.clusters.kuberay.manifest import Manifest, render
from llmops_kernel.config.kuberay import KubeRayTemplate

_DEFAULT = "default"


def usual_namespace(template: KubeRayTemplate) -> str:
    """The template's, else that of its first context; `default` without any kubeconfig."""
    if template.namespace is not None:
        return template.namespace
    if not kubeconfig.is_there():
        return _DEFAULT
    name = template.contexts[0] if template.contexts else None
    return kubeconfig.context_named(name).namespace


def accepted(template: KubeRayTemplate, *, namespace: str | None = None) -> tuple[Manifest, str]:
    """The manifest as the first context takes it with strict validation, and that place.

    Raises KubeError with every field that is refused.
    """
    kube = open_kube(kubeconfig.context_named(next(iter(template.contexts), None)).name)
    namespace = namespace or template.namespace or kube.namespace
    made = accepted_manifest(kube, template, namespace=namespace, ask=_ask)
    return made, f"context {kube.context}, namespace {namespace}"


def accepted_manifest(
    kube: Kube, template: KubeRayTemplate, *, namespace: str, ask: Callable[[Kube, Manifest], None]
) -> Manifest:
    """One that the API server accepts with strict validation, which `ask` finds out.

    Raises KubeError with each field that is refused.
    """
    lacks = features.lacking(kube) or frozenset()
    manifest = render(template, namespace=namespace, lacks=lacks)
    try:
        ask(kube, manifest)
    except KubeError as error:
        unknown = features.unknown_in(error) - lacks
        if not unknown:
            raise
        # The CRD could not be read, so this is how we learn what it lacks.
        manifest = render(template, namespace=namespace, lacks=lacks | unknown)
        ask(kube, manifest)
    return manifest


def _ask(kube: Kube, made: Manifest) -> None:
    for body in (made.raycluster, *made.companions):
        try:
            kube.create(object_path(body, named=False), body, dry_run=True)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
            kube.apply(object_path(body), body, force=True, dry_run=True)
