"""The driver of a score run: `python -m llmops_kernel.score.driver <spec>` as a Ray job."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score.config import ScoreConfig
from llmops_kernel.driver.folders import run_folder
from llmops_kernel.driver.report import DriverReport, failure_of
from llmops_kernel.driver.storage import run_storage
from llmops_kernel.errors import RunError
from llmops_kernel.metrics.events import EndEvent, OutputEvent
from llmops_kernel.score.evaluate.totals import Totals
from llmops_kernel.score.fleet import PARTS_AT_ONCE, Fleet, Slot
from llmops_kernel.score.input.parts import Part
from llmops_kernel.score.live import LiveReport
from llmops_kernel.score.output.ledger import Ledger
from llmops_kernel.score.output.sink import METRICS, Sink, part_name
from llmops_kernel.score.scorer import PartOutcome, ScorerSetup
from llmops_kernel.score.setup import (
    adapter_folder,
    columns_from,
    columns_json,
    engine_choice,
    job_of,
    open_table,
)
from llmops_kernel.score.summary import final_metrics
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.record.spec import RunSpec

_POLL_S = 0.25
_RETRY = "`llmops retry` goes on where it was; `llmops logs` has the traceback"
_LEAVE_S = 20.0
"""How long scorers may take to leave their parts after a stop."""


class ScoreDriver:
    """Scores all parts that earlier attempts have not finished."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._config = ScoreConfig.model_validate(spec.config)
        self._stop = threading.Event()
        self._report = DriverReport(spec, workspace=Path.cwd())
        self._fleet: Fleet | None = None

    def run(self) -> int:
        """Return the driver's exit status."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._report.phases_so_far()
        import ray

        ray.init(log_to_driver=True, configure_logging=False)
        # Again: ray.init installs a handler that exits at once.
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        try:
            end = self._attempt()
        except Exception as error:
            end = self._report.failed([failure_of(error, remedy=_RETRY)])
        finally:
            if self._fleet is not None:
                self._fleet.end()
        status = self._report.end(end)
        ray.shutdown()
        return status

    def _attempt(self) -> EndEvent:
        link_assets(Path.cwd())
        self._report.phase("driver", "end")
        self._report.phase("input", "begin")
        table = open_table(self._spec, self._config)
        sink = self._sink()
        sink.prepare()
        ledger = Ledger(sink, table.plan, attempt=self._spec.attempt)
        columns = columns_from(ledger.open(columns=columns_json(table.columns)))
        rows, parts = table.plan.num_rows, len(table.plan.parts)
        self._report.phase("input", "end", detail=f"{rows:,} rows in {parts:,} parts")
        if not ledger.remaining():
            return self._finish(ledger, sink, columns.metrics)
        setup = self._setup(columns, sink)
        live = LiveReport(self._report, ledger, total=rows)
        self._start(setup)
        if not self._score(ledger, live, sink):
            return self._stopped(ledger, rows)
        live.finish(self._fleet.ready if self._fleet else [])
        return self._finish(ledger, sink, columns.metrics)

    def _sink(self) -> Sink:
        url = self._config.output.url
        if not url:
            return Sink(str(run_folder(self._spec).output))
        if "://" in url or Path(url).is_absolute():
            return Sink(url)
        return Sink(str(Path(self._spec.workspace_root or Path.cwd()) / url))

    def _setup(self, columns: Any, sink: Sink) -> ScorerSetup:
        import ray

        self._report.phase("model", "begin")
        adapter = adapter_folder(self._spec, self._config.model.adapter)
        choice = engine_choice(
            self._spec,
            self._config,
            num_gpus=ray.cluster_resources().get("GPU", 0),
            score_python=_score_python(self._spec),
        )
        if choice.warning:
            self._report.warn(choice.warning, choice.remedy)
        self._report.phase("model", "end", detail=Path(choice.deployment.spec.model).name)
        self._words = choice.words
        return ScorerSetup(
            config=self._spec.config,
            job=job_of(self._config, adapter=adapter),
            deployment=choice.deployment,
            columns=columns,
            output=sink.url if _is_shared(self._config, num_nodes=len(ray.nodes())) else "",
        )

    def _start(self, setup: ScorerSetup) -> None:
        engine = self._config.engine
        self._report.phase("engine", "begin", detail=self._words)
        self._fleet = Fleet(
            setup,
            replicas=engine.replicas,
            max_replicas=engine.max_replicas or engine.replicas,
            warn=self._report.warn,
        )

    def _score(self, ledger: Ledger, live: LiveReport, sink: Sink) -> bool:
        """Score what is left; return False when the run was stopped before the end."""
        from ray.util import ActorPool

        assert self._fleet is not None
        pool, left = ActorPool([]), ledger.remaining()
        under_way = 0
        while left or under_way:
            for scorer in self._fleet.poll():
                live.loaded(self._fleet.ready[-1])
                for number in range(PARTS_AT_ONCE):
                    pool.push(Slot(scorer, number))
            if self._stop.is_set():
                break
            while left and pool.has_free():
                pool.submit(_score_part, left.pop(0))
                under_way += 1
            self._fleet.grow(parts_left=len(left) + under_way)
            outcome = _next(pool, has_work=under_way > 0)
            if outcome is not None:
                under_way -= 1
                self._take(outcome, ledger, sink)
            live.tick(self._fleet.ready)
        if left or under_way:
            self._leave_parts(pool, ledger, sink, under_way)
        return ledger.is_complete

    def _take(self, outcome: PartOutcome, ledger: Ledger, sink: Sink) -> None:
        if outcome.error is not None:
            raise outcome.error
        if outcome.result is None:
            return
        if outcome.data is not None:
            sink.write(part_name(outcome.index), outcome.data)
        ledger.add(outcome.result)

    def _leave_parts(self, pool: Any, ledger: Ledger, sink: Sink, under_way: int) -> None:
        """Keep what finishes in time, and note it for the next attempt."""
        assert self._fleet is not None
        print("Stop requested: the parts under way are left.", flush=True)
        self._fleet.stop()
        until_s = time.monotonic() + _LEAVE_S
        while under_way and time.monotonic() < until_s:
            outcome = _next(pool, has_work=True)
            if outcome is not None:
                under_way -= 1
                if outcome.error is None:
                    self._take(outcome, ledger, sink)
        ledger.flush()

    def _stopped(self, ledger: Ledger, num_rows: int) -> EndEvent:
        done = sum(result.rows for result in ledger.finished)
        return EndEvent(
            state="STOPPED",
            message=f"Stopped; {done:,} of {num_rows:,} rows are scored and written.",
            remedy="`llmops retry` scores the others",
            last_step=done,
        )

    def _finish(self, ledger: Ledger, sink: Sink, names: tuple[str, ...]) -> EndEvent:
        """Compute the metrics of the whole, mark the output complete, and say where it is."""
        self._report.phase("evaluate", "begin")
        totals = Totals()
        for result in ledger.finished:
            totals.merge(Totals.from_json(result.totals))
        metrics, warning = final_metrics(self._config, totals, sink)
        if warning:
            self._report.warn(*warning)
        summary = {
            "rows": totals.num_rows,
            "errors": totals.num_errors,
            "metrics": metrics,
            "metric_rows": totals.rows_of(),
            "reliability": totals.reliability(),
            "prompt_tokens": sum(one.prompt_tokens for one in ledger.finished),
            "output_tokens": sum(one.output_tokens for one in ledger.finished),
        }
        sink.write(METRICS, json.dumps(summary, indent=2).encode())
        ledger.complete({"run": self._spec.run_id, "rows": totals.num_rows})
        LiveReport.evaluation(self._report, metrics, rows=totals.num_rows)
        self._report.phase("evaluate", "end")
        size = sum(one.num_bytes for one in ledger.finished)
        self._report.emit(OutputEvent(path=sink.url, what="scores", size_bytes=size))
        message = ""
        if totals.num_errors:
            message = (
                f"{totals.num_errors:,} of {totals.num_rows:,} rows could not be scored; the column"
                " `error` says why."
            )
        return EndEvent(state="SUCCEEDED", message=message, last_step=totals.num_rows)


def _score_part(slot: Slot, part: Part) -> Any:
    return slot.scorer.score.remote(part)


def _next(pool: Any, *, has_work: bool) -> PartOutcome | None:
    """Return the next finished part; None when there is none within a moment."""
    import ray

    if not has_work or not pool.has_next():
        time.sleep(_POLL_S)
        return None
    try:
        outcome: PartOutcome = pool.get_next_unordered(timeout=_POLL_S)
    except TimeoutError:
        return None
    except ray.exceptions.RayActorError as error:
        raise RunError(
            "A process that reads and writes rows died again and again while it scored one part.",
            remedy="a hook or a row may need too much memory: lower output.part_rows, see"
            " `llmops logs`; `llmops retry` goes on where it was",
        ) from error
    return outcome


def _is_shared(config: ScoreConfig, *, num_nodes: int) -> bool:
    """Return whether scorers on all nodes can write to the output themselves."""
    return "://" in config.output.url or num_nodes == 1 or run_storage() is not None


def _score_python(spec: RunSpec) -> str:
    """Return the interpreter of vLLM's own environment on this node; empty if there is none."""
    from llmops_kernel.score.environment import python_of

    return python_of(Path(spec.cache_root) if spec.cache_root else None)


def main() -> None:
    spec = RunSpec.decode(sys.argv[1])
    print(f"run {spec.run_id}, attempt {spec.attempt}", flush=True)
    sys.exit(ScoreDriver(spec).run())


if __name__ == "__main__":
    main()
