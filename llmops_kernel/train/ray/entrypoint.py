"""The driver of a run: `python -m llmops_kernel.train.ray.entrypoint` as a Ray job."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.compat import ray_logs
from llmops_kernel.driver.last_lines import LastLines
from llmops_kernel.driver.nodes import NodeHolds, this_node
from llmops_kernel.driver.queue_place import ClusterCapacity, capacity_of
from llmops_kernel.driver.queue_watch import QueueWatch, gave_way, yields_to
from llmops_kernel.driver.report import DriverReport, print_traceback, with_remedy
from llmops_kernel.driver.storage import run_folder
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.metrics.events import EndEvent, ProcessEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.context import StopRequestedError
from llmops_kernel.train.requirements import check_device, check_packages
from llmops_kernel.train.script.ends import ended_stalled
from llmops_kernel.warm.preload import without_collections

# Read by Ray Train in this process and its controller. A lost worker is seen in half a second
# instead of two; workers may wait ten minutes for a busy cluster; and the workers stay in the
# workspace folder instead of a folder of Ray's.
_RAY_TRAIN_SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # Turns off Ray's copies of the log, which nothing reads; the job's and the workers' logs stay.
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
}


_Groups = Callable[[str, dict[str, Any]], Any]
"""Returns a trainer by the name of a probe, empty for the run itself, and further values that its
workers get."""


class Driver:
    """Runs one attempt, from the job's start to its end event."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._stop = threading.Event()
        self._report: DriverReport
        self._queue: QueueWatch
        self._capacity: ClusterCapacity
        self._watch: RunWatch | None = None
        self._workers = 0  # until they are requested

    def run(self) -> int:
        """Run the attempt and return the process's exit status."""
        for name, value in _RAY_TRAIN_SETTINGS.items():
            os.environ.setdefault(name, value)
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        with without_collections():
            import ray

        last_lines = LastLines()
        ray.init(log_to_driver=True, configure_logging=False)
        self._capacity = capacity_of(self._spec)
        if len(ray.nodes()) == 1 and not self._capacity.grows:
            # One process less: a single node would not survive a preemption anyway.
            os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
        # ray.init installs a handler of its own that exits at once.
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._report = DriverReport(self._spec, logs=ray_logs())
        self._queue = QueueWatch(self._report.emit, spec=self._spec)
        self._report.phases_so_far()
        end = self._attempt()
        self._queue.end()
        if self._watch is not None:
            self._watch.end()
        if not end.last_step:
            self._report_workers()
        last_lines.wait(range(self._workers), returned=end.state == "SUCCEEDED")
        status = self._report.end(end, others=("controller",))
        ray.shutdown()
        return status

    def _report_workers(self) -> None:
        """Write how the workers were started: without a first step rank 0 has not written it."""
        from llmops_kernel.driver import kv_store as kv

        # A store that is gone with the head must not prevent the end event.
        with contextlib.suppress(Exception):
            for value in kv.values(kv.key(self._spec.run_id, self._spec.attempt, "process/")):
                self._report.emit(ProcessEvent.model_validate(value))

    def _attempt(self) -> EndEvent:
        """Train, and return the end event whatever happens."""
        try:
            config = TrainingConfig.model_validate(self._spec.config)
            check_packages(config)
            return self._watch_fit(config)
        except Exception as error:
            return self._failed(error)

    def _watch_fit(self, config: TrainingConfig) -> EndEvent:
        """Run Ray Train in a thread, so that this one receives the stop signal."""
        watch = self._watch = RunWatch(
            self._report.emit, self._spec, config.monitor, folder=run_folder(self._spec).root
        )
        groups = self._groups(config, watch)
        trainer = groups("", {})
        self._report.phase("driver", "end")
        watch.begin(node=this_node()[0])
        self._workers = config.parallelism.num_workers
        raised: list[BaseException] = []
        arguments = (config, groups, trainer, raised)
        thread = threading.Thread(target=self._fit, args=arguments, daemon=True)
        thread.start()
        is_stop_sent = False
        while thread.is_alive():
            thread.join(0.2)
            if not self._stop.is_set():
                continue
            if not is_stop_sent:
                is_stop_sent = True
                self._ask_workers_to_stop()
            if watch.is_stalled:
                return ended_stalled(self._spec.run_id)
            if self._queue.is_queued:
                # There are no workers that could answer; Ray drops the request with the job.
                return self._stopped_in_queue()
        if raised and not isinstance(raised[0], StopRequestedError):
            return self._failed(raised[0])
        return self._ended(stopped=bool(raised))

    def _fit(
        self, config: TrainingConfig, groups: _Groups, trainer: Any, raised: list[BaseException]
    ) -> None:
        """Settle the micro batch, then train; put what is raised into the list.

        A run that gave way to another begins again with new workers, from its checkpoint.
        """
        while True:
            try:
                if config.training.micro_batch_size == "auto":
                    self._search(config, groups)
                workers = counted(self._workers, "worker")
                self._report.phase("workers", "begin", detail=workers)
                trainer.fit()
                if not self._gives_way():
                    return
            except StopRequestedError as error:
                if not self._gives_way(is_stopped=True):
                    raised.append(error)
                    return
            except BaseException as error:
                raised.append(error)
                return
            trainer = groups("", {})

    def _gives_way(self, *, is_stopped: bool = False) -> bool:
        """Return whether the workers have stopped for a run that must go before this one."""
        from llmops_kernel.driver import kv_store as kv

        result = kv.get(kv.key(self._spec.run_id, self._spec.attempt, "result")) or {}
        other = yields_to(self._spec)
        if self._stop.is_set() or not other or not (is_stopped or result.get("stopped")):
            return False
        self._report.emit(gave_way(self._spec, other, step=result.get("last_step")))
        return True

    def _search(self, config: TrainingConfig, groups: _Groups) -> None:
        from llmops_kernel.train.ray.batch_search import BatchSearch

        BatchSearch(
            self._spec,
            config,
            report=self._report,
            start=groups,
            is_stopped=lambda: self._stop.is_set() or bool(yields_to(self._spec)),
        ).run()

    def _groups(self, config: TrainingConfig, watch: RunWatch) -> _Groups:
        """Return what makes the trainer of a worker group: of the run itself, or of a probe."""
        with without_collections():
            from ray.train import FailureConfig, RunConfig, ScalingConfig

            from llmops_kernel.train.ray.resources import resources
            from llmops_kernel.train.ray.trainer import make_trainer
            from llmops_kernel.train.ray.worker import run_probe, run_worker

        request = resources(config, self._capacity)
        check_device(config, use_gpu=request.use_gpu)
        for hint in config.advice():
            self._report.warn(f"{hint.path}: {hint.message}.", hint.suggestion)
        holds = NodeHolds(self._report.emit, on_use=watch.use)
        groups = itertools.count(1)

        def make(probe: str, values: dict[str, Any]) -> Any:
            name = [self._spec.run_id, str(self._spec.attempt), probe or str(next(groups))]
            trainer, warning = make_trainer(
                self._spec,
                run_probe if probe else run_worker,
                holds=holds,
                queue=self._queue,
                restarts=not probe,
                train_loop_config={
                    "spec": self._spec.model_dump_json(),
                    "use_gpu": request.use_gpu,
                    **values,
                },
                scaling_config=ScalingConfig(
                    num_workers=config.parallelism.num_workers,
                    use_gpu=request.use_gpu,
                    resources_per_worker=request.per_worker,
                ),
                run_config=RunConfig(
                    name="-".join(name),  # Ray Train goes on with what one of its name has left.
                    storage_path=str(run_folder(self._spec).root / "ray"),
                    failure_config=FailureConfig(
                        max_failures=0 if probe else config.training.max_failures
                    ),
                ),
            )
            if warning and not probe:
                self._report.emit(warning)
                if request.warning:  # Else the run is shown as queued.
                    self._report.warn(request.warning, request.remedy)
            return trainer

        return make

    def _ask_workers_to_stop(self) -> None:
        from llmops_kernel.driver import kv_store as kv

        print("Stop requested: the workers save a checkpoint after their current step.", flush=True)
        kv.put(kv.key(self._spec.run_id, self._spec.attempt, "stop"), True)

    def _stopped_in_queue(self) -> EndEvent:
        self._queue.end()
        self._workers = 0
        return EndEvent(
            state="STOPPED",
            message="Stopped while it waited for free resources on the cluster.",
            remedy="`llmops retry` submits it again",
        )

    def _ended(self, *, stopped: bool) -> EndEvent:
        """Return the end of a run without a failure; `stopped`: while it looked for a size."""
        from llmops_kernel.driver import kv_store as kv

        result = kv.get(kv.key(self._spec.run_id, self._spec.attempt, "result")) or {}
        last_step = result.get("last_step")
        if stopped or result.get("stopped"):
            return EndEvent(
                state="STOPPED",
                message=f"Stopped at step {last_step}, after saving a checkpoint."
                if last_step
                else "Stopped before the first step.",
                remedy="`llmops retry` resumes from there",
                last_step=last_step,
            )
        return EndEvent(state="SUCCEEDED", last_step=last_step)

    def _failed(self, error: BaseException) -> EndEvent:
        """Journal each distinct failure once; the end event has the message of the first."""
        from llmops_kernel.train.ray.failures import failures

        events = [with_remedy(failure, self._spec) for failure in failures(error, self._spec)]
        for failure in events:
            self._report.emit(failure)
            print_traceback(failure)
        first = events[0]
        return EndEvent(state="FAILED", message=first.message, remedy=first.remedy)


def main() -> None:
    started = time.strftime("%Y-%m-%d %H:%M:%S %z")
    spec = RunSpec.of_this_job()
    print(f"run {spec.run_id}, attempt {spec.attempt}, driver began at {started}", flush=True)
    if spec.has_packages:
        from llmops_kernel.driver.packages import prepare  # 7 ms that most runs need not wait for.

        prepare(spec)
    sys.exit(Driver(spec).run())


if __name__ == "__main__":
    main()
