"""The folder or URL that scored rows are written to, each file whole or absent."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.driver.disk import is_disk_full, reason
from llmops_kernel.errors import StoreError
from llmops_kernel.store.files import write_new, write_whole
from llmops_kernel.tables.files import open_url

SUCCESS = "_SUCCESS"
METRICS = "_metrics.json"
"""Readers of Parquet folders leave out names that begin with `_`."""
_LEDGER = "_ledger"
_SCRATCH = "_tmp"
_LEFT_OVER = (".part-", "._metrics.", "._SUCCESS.")
"""Prefixes of files that a killed process of the output's own run leaves behind."""
_OF_ANY_RUN = ("._plan.", f".{_SCRATCH}-", f"{_SCRATCH}-")
"""Prefixes of files of any run that finds out whether the output can be its own."""


def part_name(index: int) -> str:
    return f"part-{index:08d}.parquet"


class Sink:
    """The folder of an output. Each method raises StoreError with what to do."""

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

        Object stores show an object when its upload ends; on a disk a scratch file is renamed when
        its bytes are there to stay, also after a loss of power.
        """
        target = f"{self._root}/{name}"
        try:
            if self._is_local:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                write_whole(Path(target), data)
            else:
                self._files.pipe_file(target, data)
        except Exception as error:  # Each kind of store has errors of its own.
            raise self._failed("written", name, error) from error

    def write_first(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; return False where another process was quicker.

        Object stores cannot say that: there the last one to write wins.
        """
        if not self._is_local:
            self.write(name, data)
            return True
        target = Path(self._root) / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_new(target, data)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed("written", name, error) from error
        return True

    def write_table(self, index: int, table: Any) -> int:
        """Write a part; return its bytes."""
        data = table_bytes(table)
        self.write(part_name(index), data)
        return len(data)

    def append_ledger(self, name: str, entries: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        self.write(f"{_LEDGER}/{name}.jsonl", text.encode())

    def ledger(self) -> list[dict[str, Any]]:
        """Return all entries of finished parts, in the order of their files' names.

        A line that was cut off, as by a crash of the machine, is left out: its part is done again.
        """
        entries = []
        for path in self._list(_LEDGER):
            if not path.endswith(".jsonl") or PurePosixPath(path).name.startswith("."):
                continue
            lines = map(as_object, self._read_path(path).splitlines())
            entries += [line for line in lines if line is not None]
        return entries

    def parts(self) -> dict[str, int]:
        """Return the bytes of each part file that is there, by name."""
        return {name: size for name, size in self._sizes().items() if name.startswith("part-")}

    def sweep(self, *, is_complete: bool) -> None:
        """Delete what processes of the output's run have left that were killed while they wrote.

        Once it `is_complete` also what other runs left that found it taken, or begun.
        """
        begins = (*_LEFT_OVER, *(_OF_ANY_RUN if is_complete else ()))
        for name in self._sizes():
            if name.startswith(begins):
                self._delete(name)
        for path in self._list(_LEDGER):
            if PurePosixPath(path).name.startswith("."):
                self._delete_path(path)

    def _sizes(self) -> dict[str, int]:
        try:
            self._files.invalidate_cache()
            infos = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise self._failed("listed", "the folder", error) from error
        return {PurePosixPath(info["name"]).name: int(info["size"] or 0) for info in infos}

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

    def _failed(self, action: str, name: str, error: Exception) -> StoreError:
        if is_disk_full(error):
            remedy = "free some disk space, then `llmops retry` goes on where it was"
        else:
            remedy = (
                "check output.url and the nodes' permissions for it, then `llmops retry` goes on"
                " where it was"
            )
        return StoreError(
            f"{PurePosixPath(name).name} in {self.url} cannot be {action}: {reason(error)}",
            remedy=remedy,
        )


def as_object(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None where the text is none, or was cut off."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def table_bytes(table: Any) -> bytes:
    """Return a table as a Parquet file."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
