"""Which address of a run's journal is read: one that the user's own config or template names.

A journal is written by the cluster. Were any address of it read, a run could decide where this
machine sends requests that are signed with its user's credentials (`s3://x?endpoint_override=...`),
or which page of the user's network it fetches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmops_kernel.errors import RunStateError
from llmops_kernel.store.record.record import Attempt, RunRecord

_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs")


def check_reported(url: str, record: RunRecord, attempts: Sequence[Attempt]) -> None:
    """Raise RunStateError for a URL that is not below `output.url` of the run's config, nor in the
    folder of the run in the cluster's `storage.runs`, as it was when the run was submitted.

    Paths of this machine's disks pass.
    """
    if "://" not in url or any(_is_below(url, base) for base in _named(record, attempts)):
        return
    if any(attempt.run_storage is None for attempt in attempts) and _is_plain(url, record.run_id):
        return
    raise RunStateError(
        f"The journal of run {record.run_id} names an output at {url!r}, which neither output.url"
        " of its config nor storage.runs of its cluster's template names: it is not read.",
        remedy="if the address is right, copy the output to this machine with your store's own"
        " tool, and name that folder instead",
    )


def _named(record: RunRecord, attempts: Sequence[Attempt]) -> Iterator[str]:
    output = record.config.get("output")
    if isinstance(output, dict) and "://" in str(output.get("url") or ""):
        yield str(output["url"])
    for attempt in attempts:
        if attempt.run_storage:
            yield f"{attempt.run_storage.rstrip('/')}/{record.run_id}"


def _is_below(url: str, base: str) -> bool:
    rest = url.removeprefix(base.rstrip("/"))
    if rest == url:
        return False
    return rest in ("", "/") or (rest.startswith("/") and _is_path(rest))


def _is_path(text: str) -> bool:
    return not any(mark in text for mark in ("?", "#", "::", "\\")) and ".." not in text.split("/")


def _is_plain(url: str, run_id: str) -> bool:
    """Of a run whose storage was not recorded, by an earlier version: the folder of the run in a
    bucket, without options, chained file systems or a server.
    """
    scheme, _, rest = url.partition("://")
    return scheme in _STORES and "@" not in rest and _is_path(rest) and run_id in rest.split("/")
