"""The function that Ray Train runs in each worker: the loop, and its failure for the driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from llmops_kernel.config.less_memory import changed
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import checkpoint, compat, storage
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.beats import FIRST_STEP, open_beat
from llmops_kernel.driver.last_lines import mark_first_lines, mark_last_lines
from llmops_kernel.driver.storage import folder_on_node, open_bucket, storage_folder
from llmops_kernel.metrics.events import PhaseEvent, ProcessEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import PROFILE_MESSAGE, RunSpec
from llmops_kernel.store.run_lines import RunLines
from llmops_kernel.train.context import StopRequestedError, WorkerContext
from llmops_kernel.train.failures import describe, is_out_of_memory
from llmops_kernel.warm.for_jobs import model_cache_bytes, start_report
from llmops_kernel.warm.preload import without_bitsandbytes, without_collections


def run_folder(spec: RunSpec) -> RunFolder:
    """Return the run's folder as this node sees it."""
    return folder_on_node(spec, node=lambda: _node_id()[:8])


def newest_step(spec: RunSpec) -> int:
    """Return the step of the checkpoint that the next worker group resumes from; 0: none."""
    bucket = open_bucket(spec.run_id)
    if bucket is not None:
        stored = bucket.newest()
        return stored.step if stored else 0
    newest = checkpoint.latest(run_folder(spec).checkpoints)
    return newest.step if newest else 0


def config_changes(spec: RunSpec) -> list[dict[str, Any]]:
    """Return the changes of the config after each time that memory ran out, oldest first."""
    return kv.get(kv.key(spec.run_id, spec.attempt, "changes")) or []


def micro_batch_key(spec: RunSpec) -> str:
    """Return the key of the size that `micro_batch_size: auto` stands for in this attempt."""
    return kv.key(spec.run_id, spec.attempt, "micro-batch-size")


def config_at_start(spec: RunSpec) -> TrainingConfig:
    """Return the run's config with the micro batch that was searched for, if it was."""
    config = TrainingConfig.model_validate(spec.config)
    size = kv.get(micro_batch_key(spec)) if config.training.micro_batch_size == "auto" else None
    return config if size is None else changed(config, {"training.micro_batch_size": size})


def config_in_force(spec: RunSpec) -> TrainingConfig:
    """Return the run's config with all changes that this attempt has made."""
    config = config_at_start(spec)
    for changes in config_changes(spec):
        config = changed(config, changes)
    return config


def failure_key(spec: RunSpec) -> str:
    """Return the prefix of the failures' keys; what ran with earlier settings has another one."""
    return kv.key(spec.run_id, spec.attempt, f"failure/{len(config_changes(spec))}/")


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def open_journal(spec: RunSpec, stream: str) -> JournalWriter:
    """Open a stream of this attempt's journal for writing."""
    return storage.open_journal(spec, stream, logs=compat.ray_logs())


def worker_context(spec: RunSpec, *, use_gpu: bool, writes: bool = True) -> WorkerContext:
    """Return the context of this worker process; call it once the process group exists.

    Without `writes` it has no journal and no bucket, and begins without a checkpoint.
    """
    import ray.train

    link_assets(Path.cwd())  # Data as submitted comes before the client's folder.
    train = ray.train.get_context()
    rank = train.get_world_rank()
    begun = kv.key(spec.run_id, spec.attempt, FIRST_STEP)
    stop = kv.Flag(kv.key(spec.run_id, spec.attempt, "stop")) if rank == 0 else None
    fallback = (Path(spec.workspace_root),) if spec.workspace_root else ()
    shared_cache = Path(spec.cache_root) if spec.cache_root else None
    return WorkerContext(
        run_id=spec.run_id,
        rank=rank,
        world_size=train.get_world_size(),
        local_rank=train.get_local_rank(),
        local_world_size=train.get_local_world_size(),
        use_gpu=use_gpu,
        folder=run_folder(spec).root,
        bucket=open_bucket(spec.run_id) if writes else None,
        visible=storage.offers_to_clients(spec, logs=compat.ray_logs()),
        is_kept=storage_folder(spec.run_id) is not None,
        workspace=Path.cwd(),
        fallback_workspaces=fallback,
        cache=shared_cache if shared_cache and shared_cache.is_dir() else None,
        journal=open_journal(spec, f"worker-{_group_number(spec)}")
        if rank == 0 and writes
        else None,
        say=RunLines().take if writes else lambda _: None,
        resume=writes,
        user=spec.user,
        keep_bytes=model_cache_bytes(),
        node_id=_node_id(),
        host=os.uname().nodename,
        beat=open_beat(spec, rank=rank, world_size=train.get_world_size()) if writes else None,
        begun=lambda: kv.put(begun, True),
        profile_requested=_profile_requests(spec) if rank == 0 and writes else lambda: 0,
        stop_requested=stop.is_set if stop else lambda: False,
    )


def _profile_requests(spec: RunSpec) -> Callable[[], int]:
    """Return what gives, once for each request of a user, how many steps are to be profiled."""
    requests = kv.Requests(partial(kv.pop, kv.key(spec.run_id, spec.attempt, PROFILE_MESSAGE)))
    return lambda: int((requests.take() or {}).get("steps", 0))


def _group_number(spec: RunSpec) -> int:
    """Return 1 for the attempt's first worker group, 2 for the next: each has its own stream.

    Counted in Ray's key-value store, because rank 0 may move to another node.
    """
    name = kv.key(spec.run_id, spec.attempt, "worker-groups")
    number = int(kv.get(name) or 0) + 1
    kv.put(name, number)
    return number


def run_worker(payload: dict[str, Any]) -> None:
    """Train in this worker process; `payload` is `{"spec": RunSpec as JSON, "use_gpu": bool}`."""
    entered_s = time.time()
    spec = RunSpec.model_validate_json(payload["spec"])
    context = worker_context(spec, use_gpu=payload["use_gpu"])
    mark_first_lines(context.rank)
    context.emit(PhaseEvent(name="workers", state="end", time_s=entered_s))
    _report_start(spec, context)
    config, failures_of = None, failure_key(spec)
    try:
        config = config_in_force(spec)
        with _importing(config, context):
            from llmops_kernel.train import loop
        outcome = loop.train(config, context)
        result = {"last_step": outcome.last_step, "stopped": outcome.stopped}
    except StopRequestedError:
        result = {"last_step": 0, "stopped": True}
    except BaseException as error:
        _store_failure(error, f"{failures_of}{context.rank}", context, config)
        raise
    finally:
        from llmops_kernel.train.checkpoints.store import store_journal

        store_journal(context)
        mark_last_lines(context.rank)
    if context.is_main:
        kv.put(kv.key(spec.run_id, spec.attempt, "result"), result)


@contextmanager
def _importing(config: TrainingConfig, context: WorkerContext) -> Iterator[None]:
    # A cold process imports PEFT here, which would import bitsandbytes and all that it says.
    hidden = nullcontext() if config.method.needs else without_bitsandbytes()
    with context.phase("imports"), hidden, without_collections():
        yield


def _store_failure(
    error: BaseException, name: str, context: WorkerContext, config: TrainingConfig | None
) -> None:
    failure = describe(error, rank=context.rank, workspace=Path.cwd(), config=config)
    where = {"step": context.step, "phase": context.in_phase}
    kv.put(name, failure.model_copy(update=where).model_dump(mode="json"))


def run_probe(payload: dict[str, Any]) -> None:
    """Try micro batches in this worker process, and write nothing but what they came to.

    `payload` is that of `run_worker`, and the fields of `probe.Sizes` with the prefix `key` of the
    values that are stored: `noted`, the size it began with and the largest that fits, and failures.
    """
    spec = RunSpec.model_validate_json(payload["spec"])
    context = worker_context(spec, use_gpu=payload["use_gpu"], writes=False)
    config, key = config_in_force(spec), payload["key"]
    try:
        with _importing(config, context):
            from llmops_kernel.train import probe
        sizes = probe.Sizes(payload["all"], payload["begin"], payload["rows"])
        probe.probe(config, context, sizes, lambda *noted: kv.put(f"{key}noted", noted))
    except StopRequestedError:
        return
    except BaseException as error:
        _store_failure(error, f"{key}failure/{context.rank}", context, config)
        if is_out_of_memory(error):  # Ray prints what is raised, and this is expected.
            raise MemoryError("this micro batch does not fit, as the search expects") from None
        raise


def _report_start(spec: RunSpec, context: WorkerContext) -> None:
    """Report how this process was started: rank 0 in the journal, other ranks to the driver."""
    warm, reason = start_report()
    event = ProcessEvent(role="worker", rank=context.rank, warm=warm, reason=reason)
    if context.is_main:
        context.emit(event)
    else:
        name = kv.key(spec.run_id, spec.attempt, f"process/{context.rank}")
        kv.put(name, event.model_dump(mode="json"))
