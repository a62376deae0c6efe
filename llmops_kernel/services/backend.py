"""The run store and the cluster providers that a call works with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.providers import registry
from llmops_kernel.providers.protocol import ClusterProvider, Survey
from llmops_kernel.providers.registry import Providers
from llmops_kernel.store.store import RunStore


class Backend:
    """A run store and a list of providers; by default those of this home folder."""

    def __init__(
        self, *, store: RunStore | None = None, providers: Providers | None = None
    ) -> None:
        self.store = store or RunStore()
        self._providers = providers

    def providers(self) -> Sequence[ClusterProvider]:
        """Return the providers that can have clusters here, local ones first."""
        return registry.providers() if self._providers is None else self._providers()

    def provider_for(self, template: AnyTemplate | str) -> ClusterProvider:
        """Return the provider of a template, or of the cluster of that name.

        Raises ClusterNotFoundError when no provider knows the name.
        """
        return registry.provider_for(template, among=self._providers)

    def provider_named(self, name: str) -> ClusterProvider | None:
        """Return the provider called `local` or `kuberay`; None for an unknown one."""
        if self._providers is not None:
            return next((each for each in self._providers() if each.name == name), None)
        return registry.provider_named(name) if name in registry.provider_names() else None

    def survey(self) -> Survey:
        """Return all clusters, and the errors of providers that could not list theirs."""
        return registry.survey(among=self._providers)


_CURRENT: ContextVar[Backend | None] = ContextVar("llmops_backend", default=None)


def current() -> Backend:
    """Return the backend set by `use`; otherwise a new one of this home folder."""
    return _CURRENT.get() or Backend()


@contextmanager
def use(backend: Backend) -> Iterator[None]:
    """Make `backend` the one that `current` returns in this context."""
    token = _CURRENT.set(backend)
    try:
        yield
    finally:
        _CURRENT.reset(token)
