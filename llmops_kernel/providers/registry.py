"""Which providers there are, and which of them has which cluster.

A provider is registered by the dotted path of its class, which is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from llmops_kernel.config.models.cluster import TEMPLATES, AnyTemplate
from llmops_kernel.errors import (
    ClusterNotFoundError,
    ConfigError,
    LLMOpsError,
    MissingDependencyError,
)
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, Survey

_CLASSES: Final = {
    # Local ones first: their names are known without any network.
    "local": "llmops_kernel.providers.local.provider:LocalProvider",
    "kuberay": "llmops_kernel.providers.kuberay.provider:KubeRayProvider",
}
"""Name of a provider -> `package.module:Class`."""
_AVAILABLE: Final = {
    "kuberay": "llmops_kernel.providers.kuberay.api.kubeconfig:is_available",
}
"""Name of a provider -> `package.module:function` that returns whether it can have clusters here.

While it cannot, lists of clusters do not import the provider.
"""

Providers = Callable[[], Sequence[ClusterProvider]]
"""Returns the providers to ask, in place of the registered ones."""


def register(name: str, target: str, *, template: str = "") -> None:
    """Add a provider, or replace the one of that name.

    `target` is `package.module:Class`. The class inherits from ClusterProvider and is called
    with the folder of this user's state, or None for the usual one. `template` names, in the
    same way, the model of its cluster templates: a subclass of AnyTemplate with fields of its own.
    """
    _CLASSES[name] = target
    _AVAILABLE.pop(name, None)
    TEMPLATES.add(name, template or AnyTemplate)


def unregister(name: str) -> None:
    """Remove a provider and its templates."""
    _CLASSES.pop(name, None)
    _AVAILABLE.pop(name, None)
    TEMPLATES.remove(name)


def provider_names() -> tuple[str, ...]:
    """Return the names of all providers, in the order in which they are asked."""
    return tuple(_CLASSES)


def provider_named(name: str, *, home: Path | None = None) -> ClusterProvider:
    """Return the provider of that name. Raises ConfigError when there is none."""
    return _class_of(name)(home)


def providers(*, home: Path | None = None) -> list[ClusterProvider]:
    """Return the providers that can have clusters here, in the order in which they are asked."""
    return [provider_named(name, home=home) for name in _CLASSES if _is_available(name)]


def shares_disk(provider: str) -> bool:
    """Return whether runs on that provider's clusters write into the run folder themselves.

    False for a provider that is not registered here.
    """
    return provider in _CLASSES and _class_of(provider).shares_disk


def names_before(provider: str, *, home: Path | None = None) -> tuple[str, ...]:
    """Return names of clusters of the providers that are asked before this one."""
    known: list[str] = []
    for name in _CLASSES:
        if name == provider:
            break
        if _is_available(name):
            with suppress(LLMOpsError):
                known += provider_named(name, home=home).names()
    return tuple(known)


def provider_for(template: AnyTemplate | str, *, among: Providers | None = None) -> ClusterProvider:
    """Return the provider that a template names, or that has the cluster of that name.

    Raises ClusterNotFoundError if no provider knows a cluster of that name.
    """
    if isinstance(template, str):
        return provider_for_name(template, among=among)
    if among is None:
        return provider_named(template.provider)
    return next(provider for provider in among() if provider.name == template.provider)


def provider_for_name(name: str, *, among: Providers | None = None) -> ClusterProvider:
    """Return the provider of the cluster with that name.

    Raises ClusterNotFoundError, and the error of a provider in use that could not be asked.
    """
    known: list[str] = []
    error: LLMOpsError | None = None
    for _, opened in _openers(among):
        provider = opened()
        try:
            names = provider.names()
            if name in names or provider.locate(name):
                return provider
        except LLMOpsError as failed:
            error = failed
            # Whoever has a kubeconfig for other things must not see its errors at each typo.
            if provider.is_used:
                raise
        else:
            known += names
    listed = ", ".join(sorted(known)) or "none yet"
    if error is not None:
        raise ClusterNotFoundError(
            f"Whether there is a cluster {name!r} is unknown: {error.message}. Known: {listed}",
            remedy=f"{error.remedy}; or llmops up {name}" if error.remedy else f"llmops up {name}",
        )
    raise ClusterNotFoundError(
        f"There is no cluster {name!r}; known: {listed}", remedy=f"llmops up {name}"
    )


def survey(*, among: Providers | None = None) -> Survey:
    """Return the clusters of all providers; one provider's error hides no other's clusters."""
    infos: list[ClusterInfo] = []
    errors: list[LLMOpsError] = []
    silent: list[str] = []
    for name, opened in _openers(among):
        try:
            seen = opened().survey()
        except LLMOpsError as error:
            seen = Survey((), (error,), (name,))
        infos += seen.infos
        errors += seen.errors
        silent += seen.silent
    return Survey(tuple(infos), tuple(errors), tuple(silent))


def _openers(among: Providers | None) -> list[tuple[str, Callable[[], ClusterProvider]]]:
    """Return each provider's name with a function: one that cannot be loaded hides no others."""
    if among is None:
        return [(name, partial(provider_named, name)) for name in _CLASSES if _is_available(name)]
    return [(provider.name, partial(_itself, provider)) for provider in among()]


def _itself(provider: ClusterProvider) -> ClusterProvider:
    return provider


def _is_available(name: str) -> bool:
    """Return whether the provider can have clusters here."""
    return name not in _AVAILABLE or resolve_name(_AVAILABLE[name])()


def _class_of(name: str) -> type[ClusterProvider]:
    if name not in _CLASSES:
        raise ConfigError(
            f"There is no provider {name!r}; known: {', '.join(_CLASSES)}",
            remedy="change `provider` in the cluster template",
        )
    try:
        provider: type[ClusterProvider] = resolve_name(_CLASSES[name])
    except (ImportError, AttributeError) as error:
        raise MissingDependencyError(
            f"Provider {name!r} cannot be loaded from {_CLASSES[name]}: {error}",
            remedy="install the package that provides it",
        ) from error
    return provider
