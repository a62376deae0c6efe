"""The progress of a score run in its journal: rows, rates, replicas, samples."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from llmops_kernel.driver.report import DriverReport
from llmops_kernel.metrics.events import EvalEvent, ProgressEvent
from llmops_kernel.score.fleet import LiveNodes, Replica
from llmops_kernel.score.ledger import Ledger

_SOON_S, _OFTEN_S, _LATER_S = 1.0, 60.0, 5.0
"""An event each second during the first minute, each five seconds later: a run may take a day."""
_SAMPLES_EVERY_S = 10.0
_ANSWER_S = 2.0


class LiveReport:
    """Journals the progress from the ledger and from what the scorers have under way."""

    def __init__(
        self,
        report: DriverReport,
        ledger: Ledger,
        *,
        total: int,
        nodes: LiveNodes,
        unit: str = "rows",
        caller: str = "",
    ) -> None:
        """Set up the report. `caller`: by which engines know the calls of this run."""
        self._caller = caller
        self._done = 0
        self._report, self._ledger, self._nodes = report, ledger, nodes
        self._total, self._unit = total, unit
        self._rates = Rates()
        self._member_rates: dict[int, Rates] = {}
        self._begun_s = self._written_s = time.monotonic()
        self._sampled_s = float("-inf")
        self._first_row = False
        self._earlier = {part.index for part in ledger.finished}
        self._before = sum(part.rows for part in ledger.finished)
        """Rows of earlier attempts: they count as done, not as speed."""
        self._num_loaded = 0
        self._dtype = ""
        """Number format of the first replica."""
        self._loaded_s = self._begun_s
        """When the first replica was ready: loading is no part of the rates."""

    def loaded(self, replica: Replica) -> None:
        """Report a replica that is ready; the first one ends the start-up phase."""
        self._num_loaded += 1
        self._nodes.loaded(replica.index, replica.facts)
        dtype = replica.facts.get("dtype", "")
        if self._num_loaded > 1:
            self._warn_of_other(replica.index, dtype)
            return
        self._dtype = dtype
        self._loaded_s = time.monotonic()
        load_s = replica.facts.get("load_s") or 0.0
        waited = time.monotonic() - self._begun_s
        standing = "it was loaded already" if load_s > waited + 1 else f"loaded in {load_s:.1f} s"
        words = filter(None, (standing, replica.facts.get("precision")))
        self._report.phase("engine", "end", detail="; ".join(words))
        self._report.phase("first_rows", "begin")

    def _warn_of_other(self, index: int, dtype: str) -> None:
        """Warn where a replica's device has led to another number format than the first one's."""
        if dtype != self._dtype:
            self._report.warn(
                f"Replica {index} answers in {dtype}, and the first one in {self._dtype}: their"
                " devices differ, so a row's answer depends on where it is scored.",
                "set model.dtype to one that all nodes have",
            )

    def tick(self, ready: list[Replica]) -> None:
        """Journal the progress when it is time."""
        now_s = time.monotonic()
        every_s = _SOON_S if now_s - self._begun_s < _OFTEN_S else _LATER_S
        if ready and now_s - self._written_s >= every_s:
            self._write(now_s, _progress_of(ready), _facts_of(ready))

    def finish(self, ready: list[Replica]) -> None:
        """Journal that all rows are done, with the rates of this attempt as a whole."""
        seconds = time.monotonic() - self._loaded_s
        mine = [part for part in self._ledger.finished if part.index not in self._earlier]
        counts = {name: sum(getattr(part, name) for part in mine) for name in COUNTS}
        values = {f"{name}_per_second": count / seconds for name, count in counts.items()}
        values["errors"] = float(sum(part.errors for part in self._ledger.finished))
        if not self._first_row:
            self._report.phase("first_rows", "end")
        self._report.emit(
            ProgressEvent(done=self._total, total=self._total, unit=self._unit, values=values)
        )
        self._sample(float("inf"), _progress_of(ready), self._total)

    def _write(
        self, now_s: float, progress: dict[int, dict[str, Any]], facts: dict[int, dict[str, Any]]
    ) -> None:
        self._written_s = now_s
        self._nodes.seen(facts, progress)
        progress = add_in_flight(progress, facts, self._caller)
        finished = self._ledger.finished
        open_rows = sum(result["rows"] for result in progress.values())
        # Answers on their way from the engine to a scorer are in neither's counts for a moment.
        done = max(
            self._done, min(self._total, sum(result.rows for result in finished) + open_rows)
        )
        self._done = done
        counts = {"rows": float(done - self._before)}
        for name in COUNTS[1:]:
            if progress:
                counts[name] = float(sum(result[name] for result in progress.values()))
        self._rates.add(now_s, counts)
        if done > self._before and not self._first_row:
            self._first_row = True
            self._report.phase("first_rows", "end")
        errors = float(sum(result.errors for result in finished))
        values = {"errors": errors, **_speeds(self._rates), **_replica_values(facts)}
        self._report.emit(
            ProgressEvent(
                done=done,
                total=self._total,
                unit=self._unit,
                values=values,
                members=self._members(now_s, progress, facts),
            )
        )
        self._sample(now_s, progress, done)

    def _members(
        self, now_s: float, progress: dict[int, dict[str, Any]], facts: dict[int, dict[str, Any]]
    ) -> dict[str, dict[str, float]]:
        """Return each replica's own rates and KV cache."""
        members = {}
        for index, counts in sorted(progress.items()):
            rates = self._member_rates.setdefault(index, Rates())
            rates.add(
                now_s, {"rows": counts["answered"], **{name: counts[name] for name in COUNTS[1:]}}
            )
            values = _speeds(rates)
            cache = facts.get(index, {}).get("kv_cache")
            members[f"replica {index}"] = values if cache is None else {**values, "kv_cache": cache}
        return members

    def _sample(self, now_s: float, progress: dict[int, dict[str, Any]], done: int) -> None:
        samples = [sample for counts in progress.values() for sample in counts["samples"]]
        if samples and now_s - self._sampled_s >= _SAMPLES_EVERY_S:
            self._sampled_s = now_s
            self._report.emit(EvalEvent(step=done, metrics={}, samples=tuple(samples[-5:])))

    @staticmethod
    def evaluation(report: DriverReport, metrics: dict[str, float], *, rows: int) -> None:
        """Journal the metrics of the whole table."""
        report.emit(EvalEvent(step=rows, metrics=metrics, num_rows=rows))


def add_in_flight(
    progress: dict[int, dict[str, Any]], facts: dict[int, dict[str, Any]], caller: str
) -> dict[int, dict[str, Any]]:
    """Add to what the scorers have the answers of calls that the engines have not finished."""
    merged = {}
    for index, counts in progress.items():
        rows, *tokens = facts.get(index, {}).get("under_way", {}).get(caller, (0, 0, 0))
        tokens_so_far = {name: counts[name] + n for name, n in zip(COUNTS[1:], tokens, strict=True)}
        merged[index] = {
            **counts,
            **tokens_so_far,
            "rows": counts["rows"] + rows,
            "answered": counts["answered"] + rows,
        }
    return merged


def _speeds(rates: Rates) -> dict[str, float]:
    names = {name: f"{name}_per_second" for name in COUNTS}
    speeds = {key: rates.per_second(name) for name, key in names.items()}
    return {key: rate for key, rate in speeds.items() if rate is not None}


def _progress_of(ready: list[Replica]) -> dict[int, dict[str, Any]]:
    return _ask({replica.index: replica.scorer.progress.remote() for replica in ready})


def _facts_of(ready: list[Replica]) -> dict[int, dict[str, Any]]:
    return _ask({replica.index: replica.engine.facts.remote() for replica in ready})


def _ask(calls: dict[int, Any]) -> dict[int, dict[str, Any]]:
    """Return the answers that come in time; a process that is being replaced has none."""
    import ray

    if not calls:
        return {}
    waiting = list(calls.values())
    in_time = set(ray.wait(waiting, num_returns=len(waiting), timeout=_ANSWER_S)[0])
    answers = {}
    for index, call in calls.items():
        if call not in in_time:
            continue
        try:
            answers[index] = ray.get(call)
        except ray.exceptions.RayError:
            continue
    return answers


def _replica_values(facts: dict[int, dict[str, Any]]) -> dict[str, float]:
    values: dict[str, float] = {}
    if facts:
        values["replicas"] = float(len(facts))
    caches = [engine["kv_cache"] for engine in facts.values() if engine.get("kv_cache") is not None]
    if caches:
        values["kv_cache"] = max(caches)
    running = [engine["running"] for engine in facts.values() if "running" in engine]
    if running:
        values["running"] = float(sum(running))
    return values


# --- Rates over the last seconds ---


WINDOW_S = 15.0
COUNTS = ("rows", "prompt_tokens", "output_tokens")


class Rates:
    """A window over counts that only grow; time is an argument."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, dict[str, float]]] = deque()

    def add(self, now_s: float, counts: Mapping[str, float]) -> None:
        # Rows of a part that was lost are counted again.
        if self._seen and counts["rows"] < self._seen[-1][1]["rows"]:
            self._seen.clear()
        self._seen.append((now_s, dict(counts)))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > self._window_s:
            self._seen.popleft()

    def per_second(self, name: str) -> float | None:
        """Return the rate; None before two different moments are known."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if last_s - first_s <= 0 or name not in first or name not in last:
            return None
        return max(0.0, (last[name] - first[name]) / (last_s - first_s))
