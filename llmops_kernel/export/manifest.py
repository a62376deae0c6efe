"""The list of what an export wrote; its presence says that all of it is there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from llmops_kernel.store.export_job import MANIFEST, ExportJob
from llmops_kernel.version import VERSION

IGNORE_FILE = ".llmopsignore"
_CHUNK_BYTES = 1 << 20


def files_of(folder: Path) -> list[str]:
    """Return the relative paths of an export's files, sorted, without the manifest."""
    found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(rel for rel in found if rel not in (MANIFEST, IGNORE_FILE))


def manifest_of(folder: Path, job: ExportJob) -> dict[str, Any]:
    """Return size and SHA-256 of each file, and which run they are of."""
    return {
        "run": job.card.run_id,
        "target": job.target,
        "llmops_kernel": VERSION,
        "files": {
            rel: {"bytes": (folder / rel).stat().st_size, "sha256": _sha256(folder / rel)}
            for rel in files_of(folder)
        },
    }


def write_manifest(folder: Path, job: ExportJob) -> None:
    """Write it, and keep the folder out of the packages of later submissions."""
    content = json.dumps(manifest_of(folder, job), indent=2) + "\n"
    (folder / IGNORE_FILE).write_text("*\n")
    (folder / MANIFEST).write_text(content)


def _sha256(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()
