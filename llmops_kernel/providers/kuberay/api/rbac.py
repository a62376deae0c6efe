"""Where the file is with the rules of RBAC that users of clusters need."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.config.reading.templates import FOLDER, shipped_folder

NAME = "rbac.yaml"


def rbac_file() -> str:
    """Return its path in this installation, which a wheel has below site-packages."""
    return str((shipped_folder() or Path(FOLDER)) / NAME)
