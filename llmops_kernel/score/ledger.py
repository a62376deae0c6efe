"""The finished parts: written by the driver, read again by the next attempt."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from llmops_kernel.errors import StoreError
from llmops_kernel.score.sink import SUCCESS, Sink, as_object, part_name
from llmops_kernel.tables.parts import Part, Plan

_PLAN = "_plan.json"
_FLUSH_S = 2.0
_FLUSH_ENTRIES = 200


@dataclass
class PartResult:
    """The result of a finished part."""

    index: int
    rows: int
    errors: int
    prompt_tokens: int
    output_tokens: int
    num_bytes: int
    """Size of its Parquet file."""
    seconds: float
    totals: dict[str, Any] = field(default_factory=dict)
    """Mergeable totals of its metrics."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The commonest errors of its rows -> how many rows have them."""
    refused: str = ""
    """Reason why the engine scored none of its rows, if there is a single one."""


class Ledger:
    """The finished parts of an output, which belongs to one run."""

    def __init__(self, sink: Sink, plan: Plan, *, run: str, attempt: int, is_own: bool) -> None:
        """Open the ledger of `run`, a run's id. `is_own`: the output is in the run's own folder."""
        self._sink, self._plan, self._attempt = sink, plan, attempt
        self._run, self._is_own = run, is_own
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

        Raises StoreError when another run writes there, the input is another one, or the folder
        holds other files.
        """
        text = self._sink.read(_PLAN)
        plan = None if text is None else as_object(text)
        if plan is None or not plan.keys() >= {"fingerprint", "columns"}:
            return self._begin(columns, was_cut=text is not None)
        self._check_owner(plan)
        if plan["fingerprint"] != self._plan.fingerprint:
            raise StoreError(
                f"The input has changed since {self._sink.url} was begun: its parts would not fit"
                " together.",
                remedy="submit it as a new run, which writes to a folder of its own",
            )
        self._sink.sweep(is_complete=False)
        self._recall()
        decided: dict[str, Any] = plan["columns"]
        return decided

    def _begin(self, columns: dict[str, Any], *, was_cut: bool) -> dict[str, Any]:
        strangers = sorted(self._sink.parts())
        if strangers and was_cut:
            raise StoreError(
                f"{_PLAN} in {self._sink.url} was cut off, so nobody knows what the"
                f" {len(strangers)} parts there are of.",
                remedy=f"delete {self._sink.url}; `llmops retry` then scores all rows",
            )
        if strangers:
            raise StoreError(
                f"{self._sink.url} already has {len(strangers)} Parquet parts, of no run that"
                f" can be continued ({strangers[0]}).",
                remedy="choose an empty folder in output.url, or delete the files",
            )
        plan = {"run": self._run, "fingerprint": self._plan.fingerprint, "columns": columns}
        if was_cut:
            self._sink.delete(_PLAN)
        if not self._sink.write_first(_PLAN, json.dumps(plan).encode()):
            return self.open(columns=columns)  # Two runs began it at the same moment.
        return columns

    def _check_owner(self, plan: dict[str, Any]) -> None:
        """Raise StoreError where another run has begun the output.

        Plans of earlier versions do not name their run. Such an output is this run's if it is in
        the run's own folder, or if this is a retry and no `_SUCCESS` names another run: an attempt
        before this one opened it, and a first attempt has begun nothing.
        """
        owner = plan.get("run") or self._owner_of_old()
        if owner == self._run:
            return
        raise StoreError(
            f"{self._sink.url} has the rows of {f'run {owner}' if owner else 'an earlier run'},"
            " which may be of another model, prompt or sampling.",
            remedy=f"name another folder in output.url, or delete {self._sink.url}",
        )

    def _owner_of_old(self) -> str:
        success = as_object(self._sink.read(SUCCESS) or b"") or {}
        mine = self._run if self._is_own or self._attempt > 1 else ""
        return str(success.get("run") or mine)

    def _recall(self) -> None:
        sizes = self._sink.parts()
        for entry in self._sink.ledger():
            result = _result_of(entry)
            if result is None:
                continue
            is_there = sizes.get(part_name(result.index)) == result.num_bytes
            # What made the engine refuse all rows of a part may be mended by now.
            if is_there and not result.refused:
                self._finished[result.index] = result
            else:
                self._finished.pop(result.index, None)

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
            entries = [{**asdict(result), "attempt": self._attempt} for result in self._waiting]
            self._sink.append_ledger(name, entries)
            self._waiting = []
        self._flushed_s = time.monotonic()

    def complete(self, summary: dict[str, Any]) -> None:
        """Compare the output with the input and write `_SUCCESS`. Raises StoreError."""
        self.flush()
        self._sink.sweep(is_complete=True)
        problems = mismatches(self._plan.parts, self._finished, self._sink.parts())
        if problems:
            raise StoreError(
                f"{self._sink.url} does not have all rows of the input: {problems[0]}"
                + (f", and {len(problems) - 1} more" if len(problems) > 1 else ""),
                remedy="did something else change the folder? `llmops retry` does what is missing",
            )
        self._sink.write(SUCCESS, json.dumps(summary).encode())


def _result_of(entry: dict[str, Any]) -> PartResult | None:
    """Return a line of the ledger; None for one that is not whole."""
    names = {field.name for field in fields(PartResult)}
    try:
        return PartResult(**{name: value for name, value in entry.items() if name in names})
    except TypeError:
        return None


def mismatches(
    parts: Sequence[Part], finished: dict[int, PartResult], sizes: dict[str, int]
) -> list[str]:
    """Return what is wrong with an output: parts that are missing, too many, or of other size."""
    problems = []
    for part in parts:
        result, size = finished.get(part.index), sizes.get(part_name(part.index))
        if result is None or size is None:
            problems.append(f"{part_name(part.index)} is missing")
        elif result.rows != part.num_rows:
            problems.append(f"{part_name(part.index)} has {result.rows} of {part.num_rows} rows")
        elif size != result.num_bytes:
            problems.append(f"{part_name(part.index)} has {size} of {result.num_bytes} bytes")
    names = {part_name(part.index) for part in parts}
    return problems + [f"{name} is not of this run" for name in sorted(sizes.keys() - names)]
