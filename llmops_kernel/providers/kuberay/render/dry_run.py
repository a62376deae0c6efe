"""Asks the API server whether it would accept a template, without creating anything."""

from __future__ import annotations

from collections.abc import Callable

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.kuberay.api import features, kubeconfig
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.paths import object_path
from llmops_kernel.providers.kuberay.render.manifest import Manifest, render

_DEFAULT = "default"


def usual_namespace(template: KubeRayTemplate) -> str:
    """Return the template's namespace, else its first context's; `default` without a kubeconfig."""
    if template.namespace is not None:
        return template.namespace
    if not kubeconfig.is_there():
        return _DEFAULT
    name = template.contexts[0] if template.contexts else None
    return kubeconfig.context_named(name).namespace


def accepted(template: KubeRayTemplate, *, namespace: str | None = None) -> tuple[Manifest, str]:
    """Return the manifest that the first context accepts, with its context and namespace.

    The API server validates strictly. Raises KubeError with every field that is rejected.
    """
    kube = open_kube(kubeconfig.context_named(next(iter(template.contexts), None)).name)
    namespace = namespace or template.namespace or kube.namespace
    manifest = accepted_manifest(kube, template, namespace=namespace, try_create=_ask)
    return manifest, f"context {kube.context}, namespace {namespace}"


def accepted_manifest(
    kube: Kube,
    template: KubeRayTemplate,
    *,
    namespace: str,
    try_create: Callable[[Kube, Manifest], None],
) -> Manifest:
    """Return a manifest that the API server accepts with strict validation.

    `try_create` sends it as a dry run.

    Raises KubeError with every field that is rejected.
    """
    missing = features.lacking(kube) or frozenset()
    manifest = render(template, namespace=namespace, missing_fields=missing)
    try:
        try_create(kube, manifest)
    except KubeError as error:
        unknown = features.unknown_in(error) - missing
        if not unknown:
            raise
        # The CRD could not be read, so the dry run shows what it lacks.
        manifest = render(template, namespace=namespace, missing_fields=missing | unknown)
        try_create(kube, manifest)
    return manifest


def _ask(kube: Kube, manifest: Manifest) -> None:
    for body in (manifest.raycluster, *manifest.companions):
        try:
            kube.create(object_path(body, named=False), body, dry_run=True)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
            kube.apply(object_path(body), body, force=True, dry_run=True)
