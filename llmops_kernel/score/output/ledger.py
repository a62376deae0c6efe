"""Which parts are finished: written by the driver, read again by the next attempt."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from llmops_kernel.errors import StoreError
from llmops_kernel.score.output.sink import SUCCESS, Sink, part_name
from llmops_kernel.tables.parts import Part, Plan

_PLAN = "_plan.json"
_FLUSH_S = 2.0
_FLUSH_ENTRIES = 200


@dataclass
class PartResult:
    """What a finished part is known by."""

    index: int
    rows: int
    errors: int
    prompt_tokens: int
    output_tokens: int
    num_bytes: int
    """Of its Parquet file."""
    seconds: float
    totals: dict[str, Any] = field(default_factory=dict)
    """Mergeable totals of its metrics."""


class Ledger:
    """The finished parts of an output."""

    def __init__(self, sink: Sink, plan: Plan, *, attempt: int) -> None:
        self._sink, self._plan, self._attempt = sink, plan, attempt
        self._finished: dict[int, PartResult] = {}
        self._waiting: list[PartResult] = []
        self._flushed_s = time.monotonic()
        self._number = 0

    @property
    def finished(self) -> list[PartResult]:
        return list(self._finished.values())

    @property
    def is_complete(self) -> bool:
        return len(self._finished) == len(self._plan.parts)

    def open(self, *, columns: dict[str, Any]) -> dict[str, Any]:
        """Read what earlier attempts finished; return the output's columns as first decided.

        Raises StoreError when the input is another one, or the folder holds other files.
        """
        text = self._sink.read(_PLAN)
        if text is None:
            if strangers := sorted(self._sink.parts()):
                raise StoreError(
                    f"{self._sink.url} already has {len(strangers)} Parquet parts, of no run that"
                    f" can be continued ({strangers[0]}).",
                    remedy="choose an empty folder in output.url, or delete the files",
                )
            plan = {"fingerprint": self._plan.fingerprint, "columns": columns}
            self._sink.write(_PLAN, json.dumps(plan).encode())
            return columns
        plan = json.loads(text)
        if plan["fingerprint"] != self._plan.fingerprint:
            raise StoreError(
                f"The input has changed since {self._sink.url} was begun: its parts would not fit"
                " together.",
                remedy="submit it as a new run, which writes to a folder of its own",
            )
        self._recall()
        decided: dict[str, Any] = plan["columns"]
        return decided

    def _recall(self) -> None:
        sizes = self._sink.parts()
        for entry in self._sink.ledger():
            result = PartResult(**{k: v for k, v in entry.items() if k != "attempt"})
            if sizes.get(part_name(result.index)) == result.num_bytes:
                self._finished[result.index] = result

    def remaining(self) -> list[Part]:
        return [part for part in self._plan.parts if part.index not in self._finished]

    def add(self, result: PartResult) -> None:
        """Note a part whose file is there. What is not flushed is done again after a crash."""
        self._finished[result.index] = result
        self._waiting.append(result)
        due = time.monotonic() - self._flushed_s > _FLUSH_S
        if due or len(self._waiting) >= _FLUSH_ENTRIES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._number += 1
            name = f"{self._attempt:04d}-{self._number:06d}"
            entries = [{**asdict(one), "attempt": self._attempt} for one in self._waiting]
            self._sink.append_ledger(name, entries)
            self._waiting = []
        self._flushed_s = time.monotonic()

    def complete(self, summary: dict[str, Any]) -> None:
        """Compare the output with the input and write `_SUCCESS`. Raises StoreError."""
        self.flush()
        problems = mismatches(self._plan.parts, self._finished, self._sink.parts())
        if problems:
            raise StoreError(
                f"{self._sink.url} does not have all rows of the input: {problems[0]}"
                + (f", and {len(problems) - 1} more" if len(problems) > 1 else ""),
                remedy="did something else change the folder? `llmops retry` does what is missing",
            )
        self._sink.write(SUCCESS, json.dumps(summary).encode())


def mismatches(
    parts: Sequence[Part], finished: dict[int, PartResult], sizes: dict[str, int]
) -> list[str]:
    """Return what is wrong with an output: parts that are missing, too many, or of other size."""
    found = []
    for part in parts:
        result, size = finished.get(part.index), sizes.get(part_name(part.index))
        if result is None or size is None:
            found.append(f"{part_name(part.index)} is missing")
        elif result.rows != part.num_rows:
            found.append(f"{part_name(part.index)} has {result.rows} of {part.num_rows} rows")
        elif size != result.num_bytes:
            found.append(f"{part_name(part.index)} has {size} of {result.num_bytes} bytes")
    names = {part_name(part.index) for part in parts}
    return found + [f"{name} is not of this run" for name in sorted(sizes.keys() - names)]
