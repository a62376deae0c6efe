"""The identity of the training rows, kept with each checkpoint for a resumed run to check.

A resumed run goes on at the place in the data where the checkpoint was. With other data that is
another place: it would train on some rows twice and leave others out, without a word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import DataError
from llmops_kernel.train.collectives import from_main
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import Dataset
from llmops_kernel.train.data.examples import Group
from llmops_kernel.train.data.mixture import MixedRows

if TYPE_CHECKING:
    from llmops_kernel.train.data.stream.plan import StreamPlan

FILE = "llmops_data.json"
_HASHED_BYTES = 256 << 20
"""Local files are hashed up to so much together: more does not fit into a workspace, and what is
not in one keeps its time of change when a run moves to another cluster."""
_SHOWN = 5
Identity = Mapping[str, Any]


class DataIdentity:
    """Writes what the rows are into checkpoints, and compares. Costs nothing before the first."""

    def __init__(self, data: Dataset, *, source: str, is_formatted: bool) -> None:
        """Identify the rows. `is_formatted`: by a hook, which may make another text of a row."""
        self._data = data
        self._source = source
        self._is_formatted = is_formatted
        self._cached_identity: dict[str, Any] | None = None

    def write(self, checkpoint: Path) -> None:
        """Add it to a checkpoint that is not marked complete yet. Rank 0 calls it."""
        with suppress(OSError):  # A full disk is reported by those who write the rest.
            (checkpoint / FILE).write_text(json.dumps(self._identity()))

    def check(self, checkpoint: Path, context: WorkerContext) -> None:
        """Raise DataError on all ranks if the rows are not those of the checkpoint.

        Checkpoints of earlier versions say nothing of their rows, and are resumed from.
        """
        changes: list[str] = []
        if context.is_main:
            with suppress(OSError, ValueError):
                before = json.loads((checkpoint / FILE).read_text())
                changes = differences(before, self._identity(), source=self._source)
        changes = from_main(changes)
        if not changes:
            return
        listed = changes[:_SHOWN]
        omitted = [f"{len(changes) - _SHOWN:,} more"] if len(changes) > _SHOWN else []
        raise DataError(
            f"The training data is not that of {checkpoint.name}: {'; '.join(listed + omitted)}."
            " A run that resumed would train on some rows twice and leave others out.",
            remedy="put the data back as it was and `llmops retry`, or start from the beginning"
            " with the data as it is: `llmops resubmit`",
        )

    def _identity(self) -> dict[str, Any]:
        if self._cached_identity is None:
            self._cached_identity = identity(self._data, is_formatted=self._is_formatted)
        return self._cached_identity


def identity(data: Dataset, *, is_formatted: bool = False) -> dict[str, Any]:
    """Return what the rows are: the files of streamed ones, else the tokens themselves.

    Of rows in memory that a hook has formatted only their number: it may choose at random.
    """
    if data.stream is not None:
        walk: Any = data.stream.rows.walk
        plans = [source_walk.plan for source_walk in getattr(walk, "walks", (walk,))]
        return {"files": _files(plans), "division": plans[0].division}
    if is_formatted:
        return {"num_rows": data.num_rows}
    rows: Sequence[Any] = data.train  # type: ignore[assignment]
    if isinstance(rows, MixedRows):  # Its epochs may differ.
        rows = rows.of_all_sources()
    digest = hashlib.sha256()
    tokens = 0
    for row in rows:
        tokens += len(row.input_ids)
        digest.update(np.asarray([row.input_ids, row.labels], dtype=np.int32).tobytes())
        if isinstance(row, Group):
            digest.update(repr((row.lengths, row.target)).encode())
        digest.update(b"|")
    return {"rows": len(rows), "tokens": tokens, "digest": digest.hexdigest()}


def division_of(checkpoint: Path | None) -> int | None:
    """Return how the files of streamed data were divided for a checkpoint; None without one."""
    if checkpoint is None:
        return None
    with suppress(OSError, ValueError, AttributeError):
        return int(json.loads((checkpoint / FILE).read_text()).get("division", 1))
    return 1


def _files(plans: Sequence[StreamPlan]) -> dict[str, dict[str, Any]]:
    """Return the files by name, with several sources behind the source's."""
    files = {
        file.name if len(plans) == 1 else f"{plan.source}: {file.name}": file
        for plan in plans
        for file in plan.files
    }
    local = [file for file in files.values() if "://" not in file.url]
    is_small = sum(file.size_bytes for file in local) <= _HASHED_BYTES
    return {
        name: {
            "size_bytes": file.size_bytes,
            "version": file.version,
            "sha256": _sha256(file.url) if is_small and file in local else None,
        }
        for name, file in files.items()
    }


def _sha256(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def differences(recorded: Identity, current: Identity, *, source: str) -> list[str]:
    """Describe the changes; empty: none that matters."""
    if "files" in recorded and "files" in current:
        return list(_changed_files(recorded["files"], current["files"]))
    if "files" in recorded or "files" in current:
        how = "streamed" if "files" in current else "held in memory"
        return [f"{source} is {how} now, and was not then"]
    if "num_rows" in recorded or "num_rows" in current:
        were, are = recorded.get("num_rows"), current.get("num_rows")
        is_known = were is not None and are is not None
        changed = f"{source} has {are:,} rows and had {were:,}" if is_known and were != are else ""
        return [changed] if changed else []
    if recorded["digest"] == current["digest"]:
        return []
    sizes = [_size(data) for data in (recorded, current)]
    if sizes[0] == sizes[1]:
        return [f"{source} has as many rows and tokens as then, with another content"]
    return [f"{source} gives {sizes[1]} and gave {sizes[0]} then"]


def _size(data: Identity) -> str:
    return f"{counted(data['rows'], 'sequence')} of {counted(data['tokens'], 'token')}"


def _changed_files(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} is gone" for name in before if name not in now)
    yield from (f"{name} is new" for name in now if name not in before)
    for name, old in before.items():
        new = now.get(name)
        if new is None or new["version"] == old["version"]:
            continue
        if new["size_bytes"] != old["size_bytes"]:
            yield f"{name} has {new['size_bytes']:,} bytes and had {old['size_bytes']:,}"
        elif old["sha256"] is None or new["sha256"] is None:
            yield f"{name} was written again, with the same size"
        elif new["sha256"] != old["sha256"]:
            yield f"{name} has the same size and another content"
        # Else only its time of change differs, as on a cluster that unpacks the workspace anew.
