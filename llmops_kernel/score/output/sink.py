"""The folder or URL that scored rows are written to, each file whole or absent."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import PurePosixPath
from typing import Any

from llmops_kernel.driver.disk import is_disk_full, reason
from llmops_kernel.errors import StoreError
from llmops_kernel.tables.files import open_url

SUCCESS = "_SUCCESS"
METRICS = "_metrics.json"
"""Readers of Parquet folders leave out names that begin with `_`."""
_LEDGER = "_ledger"
_SCRATCH = "_tmp"


def part_name(index: int) -> str:
    return f"part-{index:08d}.parquet"


class Sink:
    """One output. Each method raises StoreError with what to do."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = open_url(self.url)
        self._is_local = "file" in _protocols(self._files)

    def prepare(self) -> None:
        """Make the folder, and prove that it can be written."""
        name = f"{_SCRATCH}-{secrets.token_hex(4)}"
        self.write(name, b"")
        self._delete(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file so that readers see it whole or not at all; replaces one of the name.

        Object stores show an object when its upload ends; on a disk a scratch file is renamed.
        """
        target = f"{self._root}/{name}"
        try:
            if not self._is_local:
                self._files.pipe_file(target, data)
                return
            parent = PurePosixPath(target)
            self._files.makedirs(str(parent.parent), exist_ok=True)
            scratch = str(parent.with_name(f".{parent.name}.{secrets.token_hex(4)}"))
            try:
                self._files.pipe_file(scratch, data)
                self._files.mv(scratch, target)
            except BaseException:
                self._delete_path(scratch)
                raise
        except Exception as error:  # Each kind of store has errors of its own.
            raise self._failed("written", name, error) from error

    def write_table(self, index: int, table: Any) -> int:
        """Write a part; return its bytes."""
        data = table_bytes(table)
        self.write(part_name(index), data)
        return len(data)

    def append_ledger(self, name: str, entries: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        self.write(f"{_LEDGER}/{name}.jsonl", text.encode())

    def ledger(self) -> list[dict[str, Any]]:
        """Return all entries of finished parts, in the order of their files' names."""
        found = []
        for path in self._list(_LEDGER):
            if not path.endswith(".jsonl") or PurePosixPath(path).name.startswith("."):
                continue
            data = self._read_path(path)
            found += [json.loads(line) for line in data.splitlines() if line.strip()]
        return found

    def parts(self) -> dict[str, int]:
        """Return the bytes of each part file that is there, by name."""
        try:
            self._files.invalidate_cache()
            infos = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed("listed", "the folder", error) from error
        sizes = {PurePosixPath(info["name"]).name: int(info["size"] or 0) for info in infos}
        return {name: size for name, size in sizes.items() if name.startswith("part-")}

    def read(self, name: str) -> bytes | None:
        """Return a file; None if it is not there."""
        return self._read_path(f"{self._root}/{name}", missing=None)

    def exists(self, name: str) -> bool:
        return self.read(name) is not None

    def delete(self, name: str) -> None:
        self._delete(name)

    def _delete(self, name: str) -> None:
        self._delete_path(f"{self._root}/{name}")

    def _delete_path(self, path: str) -> None:
        try:
            self._files.rm_file(path)
        except FileNotFoundError:
            return
        except Exception:  # What cannot be deleted only takes up space.
            return

    def _list(self, name: str) -> list[str]:
        try:
            self._files.invalidate_cache()
            return sorted(self._files.find(f"{self._root}/{name}"))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._failed("listed", name, error) from error

    def _read_path(self, path: str, missing: Any = b"") -> Any:
        try:
            return self._files.cat_file(path)
        except FileNotFoundError:
            return missing
        except Exception as error:
            raise self._failed("read", path, error) from error

    def _failed(self, what: str, name: str, error: Exception) -> StoreError:
        if is_disk_full(error):
            remedy = "free some disk space, then `llmops retry` goes on where it was"
        else:
            remedy = (
                "check output.url and the nodes' permissions for it, then `llmops retry` goes on"
                " where it was"
            )
        return StoreError(
            f"{PurePosixPath(name).name} in {self.url} cannot be {what}: {reason(error)}",
            remedy=remedy,
        )


def table_bytes(table: Any) -> bytes:
    """Return a table as a Parquet file."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
