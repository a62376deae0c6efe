"""Scores one table from the first part to the last: parts, replicas, ledger, progress."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.driver.inputs import InputsLater, installed_versions, machine
from llmops_kernel.driver.nodes import NodeHolds
from llmops_kernel.driver.queue_place import capacity_of
from llmops_kernel.driver.queue_watch import QueueWatch
from llmops_kernel.driver.report import DriverReport
from llmops_kernel.driver.storage import run_storage
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.errors import RunError, StoreError
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.score.engine_replicas import standing_replica
from llmops_kernel.score.engines.protocol import EngineSpec
from llmops_kernel.score.failures import Refusals, check_some_scored
from llmops_kernel.score.fleet import PARTS_AT_ONCE, Fleet, LiveNodes, Slot
from llmops_kernel.score.ledger import Ledger
from llmops_kernel.score.live import LiveReport
from llmops_kernel.score.output_table import OutputColumns
from llmops_kernel.score.scorer import PartOutcome, ScorerSetup
from llmops_kernel.score.setup import (
    adapter_folder,
    base_apart,
    check_adapter_base,
    columns_from,
    columns_json,
    engine_choice,
    job_of,
    model_returns,
    open_table,
    python_of,
    roots,
)
from llmops_kernel.score.sink import Sink, part_name
from llmops_kernel.store.package.content import data_content, model_content
from llmops_kernel.store.record import RunSpec
from llmops_kernel.tables.parts import Part

_POLL_S = 0.25
_LEAVE_S = 20.0
"""Seconds that scorers may take to leave their parts after a stop."""


@dataclass(frozen=True)
class Scored:
    """The result of a scoring."""

    ledger: Ledger
    num_rows: int
    """Rows of the input."""
    columns: OutputColumns
    """Columns of the output."""
    is_complete: bool
    """False when it was stopped before the end."""


class Scoring:
    """Scores all parts that earlier attempts have not finished."""

    def __init__(
        self,
        spec: RunSpec,
        config: ScoreConfig,
        sink: Sink,
        *,
        report: DriverReport,
        holds: NodeHolds,
        watch: RunWatch,
        stop: threading.Event,
        unit: str = "rows",
    ) -> None:
        self._spec, self._config, self._sink = spec, config, sink
        self._report, self._stop, self._unit = report, stop, unit
        self._engine_label, self._holds, self._watch = "", holds, watch
        self._fleet: Fleet | None = None
        self._inputs: InputsLater | None = None
        self._queue = QueueWatch(report.emit, spec=spec)
        self._refusals = Refusals(output=sink.url)

    def run(self) -> Scored:
        """Return when all rows are scored, or a stop was requested.

        Raises LLMOpsError, also when no row could be scored.
        """
        self._report.phase("input", "begin")
        table = open_table(self._spec, self._config)
        self._sink.prepare()
        ledger = Ledger(
            *(self._sink, table.plan),
            run=self._spec.run_id,
            attempt=self._spec.attempt,
            is_own=not self._config.output.url,
        )
        columns = columns_from(ledger.open(columns=columns_json(table.columns)))
        rows, parts = table.plan.num_rows, len(table.plan.parts)
        self._report.phase("input", "end", detail=f"{rows:,} rows in {parts:,} parts")
        if ledger.remaining():
            setup = self._setup(columns)
            if self._has_turn(setup):
                self._score_all(ledger, setup, rows)
        if ledger.is_complete:
            check_some_scored(ledger.finished, output=self._sink.url)
        return Scored(ledger, rows, columns, is_complete=ledger.is_complete)

    def _score_all(self, ledger: Ledger, setup: ScorerSetup, rows: int) -> None:
        live = LiveReport(
            self._report,
            ledger,
            total=rows,
            unit=self._unit,
            nodes=LiveNodes(self._holds, self._watch),
            caller=setup.caller,
        )
        self._fleet = self._start(setup)
        try:
            self._score(self._fleet, ledger, live)
            if ledger.is_complete:
                live.finish(self._fleet.ready)
        finally:
            # Whatever happens: what is finished is not done again.
            with suppress(StoreError):
                ledger.flush()
            if self._inputs is not None:
                self._inputs.wait()
            self._queue.end()
            self._fleet.end()
            self._holds.use(())

    def _setup(self, columns: Any) -> ScorerSetup:
        import ray

        capacity = capacity_of(self._spec)
        is_one = len(ray.nodes()) == 1 and not capacity.grows
        self._report.phase("model", "begin")
        self._config = base_apart(self._spec, self._config)
        adapter = adapter_folder(self._spec, self._config.model.adapter)
        returned = model_returns(self._spec, self._config, adapter)
        choice = engine_choice(
            *(self._spec, self._config),
            returned=returned,
            num_gpus=capacity.total.get("GPU", 0),
            num_nodes=len(ray.nodes()),
            score_python=python_of(self._spec.cache_root),
        )
        if choice.warning:
            self._report.warn(choice.warning, choice.remedy)
        check_adapter_base(choice.deployment.spec, adapter)
        self._report.phase("model", "end", detail=Path(choice.deployment.spec.model).name)
        self._engine_label = choice.label
        if self._unit == "rows":  # The judge's own rows and model are not those of the run.
            engine = choice.deployment.spec
            self._inputs = InputsLater(
                self._report.emit, partial(self._gather, engine, adapter, is_one_node=is_one)
            )
        job, task = job_of(self._config, adapter=adapter, returned=returned), self._config.task
        has_reference = task.type == "embed" and self._config.prompt.reference
        side = "none" if task.side == "none" else "document"
        return ScorerSetup(
            config=_with_chat(self._config, returned.kind == "text").model_dump(mode="json"),
            job=job,
            reference_job=replace(job, encoder=returned.encoder_of(side))
            if has_reference
            else None,
            deployment=choice.deployment,
            columns=columns,
            output=self._sink.url if _is_shared(self._config, is_one_node=is_one) else "",
        )

    def _gather(self, engine: EngineSpec, adapter: str, *, is_one_node: bool) -> RunInputs:
        """Return what the answers depend on. vLLM has an environment and versions of its own."""
        model = model_content(engine.model, self._config.model.revision)
        if adapter:
            inside = model_content(adapter)
            model |= {f"adapter/{name}": value for name, value in inside.items()}
        return RunInputs(
            versions=installed_versions() if engine.type == "transformers" else {},
            machine=machine(computes=False) if is_one_node else {},
            data=data_content([self._config.input.path], roots(self._spec)),
            model=model,
        )

    def _has_turn(self, setup: ScorerSetup) -> bool:
        """Wait for the run's turn, unless an engine is loaded already; False when stopped."""
        self._report.phase("engine", "begin", detail=self._engine_label)
        gpus = setup.deployment.spec.num_gpus
        is_loaded = bool(gpus) and standing_replica(setup.deployment, 0) is not None
        request = None if is_loaded or not gpus else {"GPU": gpus}
        return self._queue.begin(request, stop=self._stop)

    def _start(self, setup: ScorerSetup) -> Fleet:
        engine = self._config.engine
        return Fleet(
            setup,
            replicas=engine.replicas,
            max_replicas=engine.max_replicas or engine.replicas,
            warn=self._report.warn,
        )

    def _score(self, fleet: Fleet, ledger: Ledger, live: LiveReport) -> None:
        """Score what is left, until the end or a stop."""
        from ray.util import ActorPool

        pool, remaining = ActorPool([]), ledger.remaining()
        under_way = 0
        while remaining or under_way:
            for replica in fleet.poll():
                self._queue.granted()
                live.loaded(replica)
                for number in range(PARTS_AT_ONCE):
                    pool.push(Slot(replica.scorer, number))
            if self._stop.is_set():
                break
            while remaining and pool.has_free():
                pool.submit(_score_part, remaining.pop(0))
                under_way += 1
            fleet.grow(parts_left=len(remaining) + under_way)
            outcome = _next(pool, has_work=under_way > 0)
            if outcome is not None:
                under_way -= 1
                self._take(outcome, ledger)
                if outcome.result is not None:
                    self._refusals.take(outcome.result)
            live.tick(fleet.ready)
        if remaining or under_way:
            self._leave_parts(pool, fleet, ledger, under_way)

    def _take(self, outcome: PartOutcome, ledger: Ledger) -> None:
        if outcome.error is not None:
            raise outcome.error
        if outcome.result is None:
            return
        if outcome.data is not None:
            self._sink.write(part_name(outcome.index), outcome.data)
        ledger.add(outcome.result)

    def _leave_parts(self, pool: Any, fleet: Fleet, ledger: Ledger, under_way: int) -> None:
        """Keep what finishes in time, and note it for the next attempt."""
        print("Stop requested: the parts under way are left.", flush=True)
        fleet.stop()
        until_s = time.monotonic() + _LEAVE_S
        while under_way and time.monotonic() < until_s:
            outcome = _next(pool, has_work=True)
            if outcome is not None:
                under_way -= 1
                if outcome.error is None:
                    self._take(outcome, ledger)


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


def _with_chat(config: ScoreConfig, default: bool) -> ScoreConfig:
    """Return the config that says whether a text is passed as a chat."""
    if config.prompt.chat is not None:
        return config
    prompt = config.prompt.model_copy(update={"chat": default})
    return config.model_copy(update={"prompt": prompt})


def _is_shared(config: ScoreConfig, *, is_one_node: bool) -> bool:
    """Return whether scorers on all nodes can write to the output themselves."""
    return "://" in config.output.url or is_one_node or run_storage() is not None
