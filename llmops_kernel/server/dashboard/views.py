"""Views: short permissions to read one cluster's dashboard, held by a page without a login."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from llmops_kernel.server.dashboard.ray_pages import RayPages

LIFE_S: Final = 300.0
"""A page renews its view each half minute; a browser slows a hidden tab to once a minute."""
_MOST: Final = 256


@dataclass(frozen=True)
class View:
    """Whoever knows `id` may read the dashboard of `cluster` until `ends_s`."""

    id: str
    cluster: str
    user: str
    pages: RayPages
    ends_s: float


class Views:
    """The views of one server. They are lost with it; an open page then asks for a new one."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._views: dict[str, View] = {}

    def open(self, *, cluster: str, user: str, pages: RayPages) -> View:
        self._forget()
        view = View(secrets.token_urlsafe(32), cluster, user, pages, self._end_s())
        self._views[view.id] = view
        return view

    def renew(self, view_id: str, *, cluster: str, user: str) -> View | None:
        """Return the view with a new end; None if it has ended, or is not this user's."""
        view = self.find(view_id)
        if view is None or (view.cluster, view.user) != (cluster, user):
            return None
        self._views[view_id] = replace(view, ends_s=self._end_s())
        return self._views[view_id]

    def find(self, view_id: str) -> View | None:
        view = self._views.get(view_id)
        return view if view is not None and view.ends_s > self._clock() else None

    def _end_s(self) -> float:
        return self._clock() + LIFE_S

    def _forget(self) -> None:
        """Drop the views that have ended, and the one that ends first if there are too many."""
        views = [view for view in self._views.values() if view.ends_s > self._clock()]
        views.sort(key=lambda view: view.ends_s)
        self._views = {view.id: view for view in views[-(_MOST - 1) :]}
