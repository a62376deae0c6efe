"""A third provider, as another package would bring it: its clusters are lines of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.errors import ClusterNotFoundError, ClusterUnreachableError
from llmops_kernel.providers.capabilities import require_possible
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterSize,
    ClusterState,
    Connection,
    Progress,
)
from llmops_kernel.store import paths
from tests.providers.toy_template import ToyTemplate

TOY = "tests.providers.toy_provider:ToyProvider"
TEMPLATE = "tests.providers.toy_template:ToyTemplate"
FILE = "toy-clusters.json"
HIDDEN = "toy://"
"""Names that begin so are found, and not listed."""


class ToyProvider(ClusterProvider):
    """`toy-clusters.json` holds name -> dashboard URL, None for a head that is gone."""

    name = "toy"

    def __init__(self, home: Path | None = None) -> None:
        self._file = (home or paths.home()) / FILE

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._read() if not name.startswith(HIDDEN))

    def locate(self, name: str) -> bool:
        return name in self._read()

    def list(self) -> list[ClusterInfo]:
        return [self.get(name) for name in self.names()]

    def get(self, name: str) -> ClusterInfo:
        url = self._url(name)
        return ClusterInfo(
            name=name,
            provider=self.name,
            state=ClusterState.READY if url else ClusterState.STARTING,
            dashboard_url=url,
            actions={ClusterAction.SUSPEND: "", ClusterAction.DELETE: ""},
        )

    def connect(self, name: str) -> Connection:
        if (url := self._url(name)) is None:
            raise ClusterUnreachableError(f"{name} has no head")
        return Connection(dashboard_url=url)

    def head_is_gone(self, name: str) -> bool:
        return self._url(name) is None

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        require_possible(self.get(name), action)
        return ActionPreview(
            cluster=name, action=action, summary=f"Removes toy {name}.", needs_confirmation=True
        )

    def delete(self, name: str) -> None:
        left = {key: url for key, url in self._read().items() if key != name}
        self._file.write_text(json.dumps(left))

    def down(self, name: str) -> None:
        self.delete(name)

    def suspend(self, name: str) -> None:
        self.delete(name)

    def up(
        self,
        template: AnyTemplate,
        *,
        template_path: Path | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        assert isinstance(template, ToyTemplate)
        name = f"{HIDDEN}{template.name}" if template.spare else template.name
        self._file.write_text(json.dumps({**self._read(), name: template.head}))
        return self.get(name)

    def resume(
        self, name: str, *, progress: Progress | None = None, wait: bool = True
    ) -> ClusterInfo:
        return self.get(name)

    def scale(
        self,
        name: str,
        size: ClusterSize,
        *,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        return self.get(name)

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        return self.get(name)

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        return self.get(name)

    def _url(self, name: str) -> str | None:
        try:
            found: str | None = self._read()[name]
        except KeyError:
            raise ClusterNotFoundError(f"There is no toy {name!r}") from None
        return found

    def _read(self) -> dict[str, Any]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}
