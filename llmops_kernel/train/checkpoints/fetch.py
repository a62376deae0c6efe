"""Fetches a checkpoint from a bucket to this node and checks what arrived."""

from __future__ import annotations

import shutil
from pathlib import Path

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.storage import Bucket, Stored


def fetch(bucket: Bucket, stored: Stored, path: Path) -> str:
    """Return what is wrong with the bucket's copy; empty: `path` has it, complete.

    Files of the same writing that this node has are not fetched again. Raises StoreError and
    OSError if the bucket or the disk fails.
    """
    try:
        files = bucket.manifest(stored.name)
    except ValueError as error:
        return f"{checkpoint.MANIFEST} cannot be read: {error}"
    is_same = checkpoint.token(path) == stored.token
    if not is_same:
        shutil.rmtree(path, ignore_errors=True)
    else:
        for name in checkpoint.wrong_files(path, files or {}):
            (path / name).unlink(missing_ok=True)
    bucket.fetch(stored.name, path, overwrite=not is_same)
    if wrong := checkpoint.wrong_files(path, files or {}):
        shutil.rmtree(path, ignore_errors=True)
        return f"{wrong[0]} is not what was written (its size or its SHA-256 differs)"
    checkpoint.mark_complete(path, token=stored.token, files=files, has_other_copy=True)
    return ""
