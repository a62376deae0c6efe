"""How a worker finds the workspace's data, which travels apart from its code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, computed_field

from llmops_kernel.errors import WorkspaceError

ASSETS_FILE = ".llmops/assets.json"
"""A file of the code package: the assets package's name and content."""


class Assets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    hash: str = ""
    """Empty when the workspace has no data."""
    files: tuple[str, ...] = ()
    """Paths relative to the workspace."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def folder(self) -> str:
        """The one folder at the top of the assets package."""
        return f"llmops_assets_{self.hash}" if self.hash else ""


def link_assets(workspace: Path, *, search: Sequence[str] | None = None) -> list[str]:
    """Lay the data files into the unpacked code, as links, so that it looks as at home.

    `search` are the folders to find the assets in, default `sys.path`, where Ray puts its
    `py_modules`. Any number of workers of one node may do this at once. Returns the paths
    linked now. Raises WorkspaceError when the assets did not arrive.
    """
    about_file = workspace / ASSETS_FILE
    if not about_file.exists():
        return []
    about = Assets.model_validate_json(about_file.read_bytes())
    if not about.hash:
        return []
    places = [Path(place) / about.folder for place in (sys.path if search is None else search)]
    source = next((place for place in places if place.is_dir()), None)
    if source is None:
        raise WorkspaceError(
            f"The workspace's data package {about.folder} is not on this node.",
            remedy="submit again; if it persists, check the runtime environment's log on the node",
        )
    linked = []
    for rel in about.files:
        link = workspace / rel
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(source / rel)
            linked.append(rel)
    return linked
