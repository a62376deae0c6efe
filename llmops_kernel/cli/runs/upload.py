"""What a submission uploads: the list of `llmops submit --dry-run`, and what stays at home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def print_upload(
    config: Path, changes: Sequence[str] | None, *, workspace: Path | None, settings: dict[str, Any]
) -> None:
    """Print each file that a submission would upload; nothing is written or sent."""
    from llmops_kernel.cli.console import echo, out
    from llmops_kernel.config.counted import counted
    from llmops_kernel.services import submission
    from llmops_kernel.views.format import byte_size

    wanted = submission.from_config(
        config,
        workspace=workspace,
        overrides=submission.changes_in(changes or (), config),
        settings=settings,
    )
    found = submission.preview(wanted)
    width = max((len(name) for name in found.files), default=0)
    for name, entry in found.files.items():
        echo(f"{name:{width}}  {byte_size(entry.size_bytes)}")
    count, size = len(found.files), byte_size(found.size_bytes)
    echo(f"{counted(count, 'file')}, {size}, would be uploaded from {found.root}")
    if line := submission.about_left_out(found.left_out):
        out(stderr=True).print(line, markup=False)
