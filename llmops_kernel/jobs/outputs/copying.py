"""Copies small outputs of a run from the cluster's nodes to the run folder, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.metrics.events import OutputEvent, OutputFile
from llmops_kernel.store.files import file_lock
from llmops_kernel.store.outputs.copies import Copy, copied, output_events, to_copy
from llmops_kernel.store.outputs.parts import FOLDER, PART_BYTES, part_bytes, part_names
from llmops_kernel.store.paths import RunFolder

_LOCK: Final = ".outputs.lock"


def copy_outputs(client: JobsClient, folder: RunFolder) -> list[OutputEvent]:
    """Copy the outputs that the run offers and this folder lacks; return what was copied.

    What an interrupted call has copied is kept. Parts that no node has any more are left out.
    Raises ClusterUnreachableError, StoreError.
    """
    if not to_copy(output_events(folder)):
        return []
    # Of several clients that follow the run one copies.
    with file_lock(folder.root / _LOCK, mode=0o600):
        waiting = to_copy(output_events(folder))
        nodes = _nodes_with_parts(client, folder) if waiting else {}
        done = [_copied(client, folder, event, nodes) for event in waiting]
        return [event for event in done if event is not None]


def _copied(
    client: JobsClient, folder: RunFolder, event: OutputEvent, nodes: dict[str, str]
) -> OutputEvent | None:
    copy = Copy(event, folder)
    if any(part not in nodes for file in event.files for part in part_names(file)):
        return None
    for file in event.files:
        _fetch(client, copy, file, nodes, run_id=folder.root.name)
        copy.check(file)
    copy.finish()
    at_home = event.model_copy(
        update={"path": str(copy.target), "copied_from": event.path, "place": "", "files": ()}
    )
    return append_as_observer(
        folder.journal,
        at_home.model_copy(update={"stream": "", "seq": 0, "time_s": 0.0}),
        attempt=event.attempt,
        unless=lambda: copied(event, output_events(folder)) is not None,
    )


def _fetch(
    client: JobsClient, copy: Copy, file: OutputFile, nodes: dict[str, str], *, run_id: str
) -> None:
    has_bytes = copy.begin(file)
    parts: Sequence[str] = part_names(file)
    for number in range(min(has_bytes // PART_BYTES, len(parts)), len(parts)):
        part, at = parts[number], number * PART_BYTES
        data = client.read_log(nodes[part], f"llmops/{run_id}/{FOLDER}/{part}", lines=-1)
        expected = part_bytes(file, number)
        if data is None or len(data) != expected:
            raise ClusterUnreachableError(
                f"Part {number + 1} of {len(parts)} of {file.name} arrived with"
                f" {0 if data is None else len(data)} of {expected} bytes",
                remedy="the next command that follows the run goes on with it",
            )
        copy.write(file, data, at=at)


def _nodes_with_parts(client: JobsClient, folder: RunFolder) -> dict[str, str]:
    """Return the node of each part. Raises ClusterUnreachableError if a node does not answer."""
    glob = f"llmops/{folder.root.name}/{FOLDER}/*"
    return {
        PurePosixPath(path).name: node
        for node in client.node_ids()
        for path in client.log_files(node, glob=glob, strict=True)
    }
