"""The function that Ray Train runs in each worker: the loop, and its failure for the driver."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.last_lines import mark_first_lines, mark_last_lines
from llmops_kernel.metrics.events import PhaseEvent, ProcessEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.context import StopRequestedError, WorkerContext
from llmops_kernel.train.failures import describe
from llmops_kernel.train.ray.context import worker_context
from llmops_kernel.warm.for_jobs import start_report
from llmops_kernel.warm.preload import without_bitsandbytes, without_collections


def run_worker(payload: dict[str, Any]) -> None:
    """Train in this worker process; `payload` is `{"spec": RunSpec as JSON, "use_gpu": bool}`."""
    entered_s = time.time()
    spec = RunSpec.model_validate_json(payload["spec"])
    context = worker_context(spec, use_gpu=payload["use_gpu"])
    mark_first_lines(context.rank)
    context.emit(PhaseEvent(name="workers", state="end", time_s=entered_s))
    _report_start(spec, context)
    config = None
    try:
        config = TrainingConfig.model_validate(spec.config)
        # A cold process imports PEFT here, which would import bitsandbytes and all that it says.
        hidden = nullcontext() if config.method.needs else without_bitsandbytes()
        with context.phase("imports"), hidden, without_collections():
            from llmops_kernel.train import loop
        outcome = loop.train(config, context)
        result = {"last_step": outcome.last_step, "stopped": outcome.stopped}
    except StopRequestedError:
        result = {"last_step": 0, "stopped": True}
    except BaseException as error:
        failure = describe(error, rank=context.rank, workspace=Path.cwd(), config=config)
        kv.put(
            kv.key(spec.run_id, spec.attempt, f"failure/{context.rank}"),
            failure.model_dump(mode="json"),
        )
        raise
    finally:
        from llmops_kernel.train.checkpoints.store import store_journal

        store_journal(context)
        mark_last_lines(context.rank)
    if context.is_main:
        kv.put(kv.key(spec.run_id, spec.attempt, "result"), result)


def _report_start(spec: RunSpec, context: WorkerContext) -> None:
    """Report how this process was started: rank 0 in the journal, other ranks to the driver."""
    warm, reason = start_report()
    event = ProcessEvent(role="worker", rank=context.rank, warm=warm, reason=reason)
    if context.is_main:
        context.emit(event)
    else:
        name = kv.key(spec.run_id, spec.attempt, f"process/{context.rank}")
        kv.put(name, event.model_dump(mode="json"))
