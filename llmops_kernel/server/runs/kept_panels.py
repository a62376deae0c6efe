"""A cache of the panels of long runs that have ended: they open without reading the journal."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from llmops_kernel.server.live.hub import Json
from llmops_kernel.store.files import private_folder, write_whole
from llmops_kernel.store.journal.long_journal import forget as forget_journal
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.paths import cache
from llmops_kernel.version import VERSION

MIN_ROWS = 5_000
"""A shorter journal is read as quickly."""
_FORMAT = f"4 {VERSION}"


@dataclass(frozen=True, kw_only=True)
class KeptPanel:
    fingerprint: str
    """Fingerprint of the journal that it was made from."""
    summary: RunSummary
    panel: Json
    rows: bytes


def read_kept(run_id: str, *, fingerprint: str) -> KeptPanel | None:
    """Return the kept panel; None if there is none, or if its journal or version differs."""
    try:
        data = _path(run_id).read_bytes()
        (length,) = struct.unpack_from("<I", data)
        head = json.loads(data[4 : 4 + length])
        if (head["format"], head["fingerprint"]) != (_FORMAT, fingerprint):
            return None
        summary = RunSummary.model_validate(head["summary"])
    except (OSError, ValueError, KeyError, TypeError, struct.error, ValidationError):
        return None
    return KeptPanel(
        fingerprint=fingerprint, summary=summary, panel=head["panel"], rows=data[4 + length :]
    )


def keep(run_id: str, kept: KeptPanel) -> None:
    """Keep the panel. If the cache cannot be written, only time is lost."""
    head = {
        "format": _FORMAT,
        "fingerprint": kept.fingerprint,
        "summary": kept.summary.model_dump(mode="json"),
        "panel": kept.panel,
    }
    text = json.dumps(head).encode()
    path = _path(run_id)
    with suppress(OSError):
        private_folder(path.parent)
        write_whole(path, struct.pack("<I", len(text)) + text + kept.rows)


def forget(run_id: str) -> None:
    forget_journal(run_id)
    with suppress(OSError):
        _path(run_id).unlink(missing_ok=True)


def _path(run_id: str) -> Path:
    return cache() / "panels" / f"{run_id}.bin"
