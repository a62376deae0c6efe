"""Fires schedules: checks their revision out, submits its run or executes its notebook."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from llmops_kernel.errors import (
    ClusterNotFoundError,
    LLMOpsError,
    MissingDependencyError,
    ScheduleError,
)
from llmops_kernel.jobs.submit import GROUP_ENV_VAR
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.providers.protocol import ClusterState, Progress
from llmops_kernel.services import clusters, submission
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.schedule_source import check_out, check_source, parameters_of
from llmops_kernel.services.schedules import (
    NOTEBOOK,
    Firing,
    Schedule,
    ScheduleStore,
    short,
)
from llmops_kernel.store.paths import HOME_ENV_VAR

KEPT_CHECKOUTS = 10
POLL_S = 5.0
_STOP_S = 15.0


# --- How firings went ---


def settle(backend: Backend, schedule: Schedule) -> Schedule:
    """Write down the ends of submitted runs that have ended meanwhile; return the schedule."""
    ended: dict[str, dict[str, Any]] = {}
    for firing in schedule.firings:
        if firing.state != "SUBMITTED":
            continue
        ends: dict[str, Any] = {"state": "STOPPED", "message": "the run was deleted"}
        if backend.store.knows(firing.runs[0]):
            try:
                view = Run(backend, firing.runs[0]).view
            except LLMOpsError:
                continue  # Its cluster does not answer: nothing is known.
            ends = {"state": view.state, "message": view.message}
        if ends["state"] in TERMINAL:
            ended[firing.id] = {**ends, "ended_s": time.time()}

    def changed(known: Schedule) -> Schedule:
        for id, ends in ended.items():
            known = known.with_firing(id, **ends)
        return known

    store = ScheduleStore(backend.store)
    return store.change(schedule.name, changed) if ended else schedule


class Scheduler:
    """Fires the schedules of a home when they are due; any number of them may work at once.

    A schedule whose last firing has not ended waits for it, and then fires once.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Callable[[], float] = time.time,
        report: Progress | None = None,
    ) -> None:
        self.store = ScheduleStore(backend.store)
        self._backend, self._clock = backend, clock
        self._report = report or (lambda line: None)
        self._threads: dict[str, threading.Thread] = {}
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._stopped: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()

    def tick(self) -> list[Firing]:
        """Start each schedule that is due, in a thread of its own; return their firings."""
        self._threads = {id: each for id, each in self._threads.items() if each.is_alive()}
        started = []
        for name in self.store.names():
            try:
                schedule = self.store.load(name)
                if schedule.due(self._clock()) is None:
                    continue
                firings = settle(self._backend, schedule).firings
                if all(each.state != "SUBMITTED" for each in firings):
                    started.append(self._start(name, by_hand=False))
            except LLMOpsError as error:  # Removed, or its file is broken: the others go on.
                if self._troubles.get(name) != error.message:
                    self._report(f"{name}: {error.message}")
                self._troubles[name] = error.message
        return [firing for firing in started if firing is not None]

    def fire(self, name: str) -> Firing:
        """Start a schedule now. Raises ScheduleError while another firing of it is being started.

        Its due times stay as they are.
        """
        firing = self._start(name, by_hand=True)
        if firing is None:
            raise ScheduleError(
                f"Schedule {name!r} is being run already",
                remedy=f"`llmops schedule show {name}` has its state",
            )
        return firing

    def _start(self, name: str, *, by_hand: bool) -> Firing | None:
        self.store.load(name)
        hold = self.store.hold(name)
        if hold is None:
            return None
        try:
            firing = self.store.claim(name, now_s=self._clock(), by_hand=by_hand)
            if firing is None:
                return None
            thread = threading.Thread(
                target=self._run, args=(firing, name, hold), name=firing.id, daemon=True
            )
            self._threads[firing.id] = thread
            thread.start()
            hold = None
        finally:
            if hold is not None:
                os.close(hold)
        return firing

    def wait(self, firing: Firing, timeout_s: float | None = None) -> Firing:
        """Wait until a firing of this scheduler has submitted its run or executed its notebook."""
        if thread := self._threads.get(firing.id):
            thread.join(timeout_s)
        name = firing.id.rsplit("-", 3)[0]
        return next(each for each in self.store.load(name).firings if each.id == firing.id)

    def run(self, *, poll_s: float = POLL_S) -> None:
        """Fire what is due until `close`, or Ctrl-C, which ends the notebooks that it executes."""
        try:
            while not self._closed.is_set():
                self.tick()
                self._closed.wait(poll_s)
        finally:
            self.close()

    def stop(self, id: str) -> bool:
        """Interrupt the notebook that a firing executes; return whether it was one of ours."""
        with self._lock:
            process = self._processes.get(id)
            self._stopped.add(id)
        if process is None:
            return False
        _end(process)
        return True

    def close(self) -> None:
        """End the notebooks that are being executed. Runs that were submitted go on."""
        self._closed.set()
        for id in list(self._threads):
            self.stop(id)
        for thread in list(self._threads.values()):
            thread.join(_STOP_S)

    # One firing

    def _run(self, firing: Firing, name: str, hold: int) -> None:
        """Do what a firing is about, and write down what came of it. Raises nothing."""
        ends: dict[str, Any] = {}
        try:
            schedule = self.store.load(name)
            commit = check_source(schedule)
            self._write(name, firing.id, revision=commit)
            self._report(f"{name}: {schedule.path} at {schedule.source} ({short(commit)})")
            folder = self.store.folder(name) / firing.id
            check_out(schedule, commit, folder)
            ends = self._work(schedule, firing, folder)
            self._remove_old_checkouts(name)
        except LLMOpsError as error:
            ends = {"state": "FAILED", "message": error.message, "remedy": error.remedy}
        except Exception as error:
            ends = {"state": "FAILED", "message": f"{type(error).__name__}: {error}"}
        finally:
            if ends.get("state") != "SUBMITTED":
                ends["ended_s"] = self._clock()
            with suppress(LLMOpsError):  # Removed meanwhile.
                self._write(name, firing.id, **ends)
            os.close(hold)
        runs = f" ({', '.join(ends['runs'])})" if ends.get("runs") else ""
        why = f": {ends['message']}" if ends.get("message") else ""
        self._report(f"{name}: {str(ends.get('state', 'STOPPED')).lower()}{runs}{why}")

    def _write(self, name: str, id: str, **changes: Any) -> None:
        self.store.change(name, lambda schedule: schedule.with_firing(id, **changes))

    def _work(self, schedule: Schedule, firing: Firing, folder: Path) -> dict[str, Any]:
        if schedule.is_notebook:
            return self._execute(schedule, firing, folder)
        request = submission.from_words(
            folder / schedule.path,
            schedule.changes,
            workspace=folder / schedule.workspace if schedule.workspace else None,
            settings={},
        )
        request = replace(request, group=schedule.name)
        target = self._cluster(schedule)
        record = submission.submit(target, request, progress=self._report)
        return {"state": "SUBMITTED", "runs": (record.run_id,)}

    def _cluster(self, schedule: Schedule) -> Cluster:
        """Return the cluster, started or resumed where it is not there."""
        with suppress(ClusterNotFoundError):
            target = clusters.find(schedule.cluster, backend=self._backend)
            if target.info.state in (ClusterState.READY, ClusterState.STARTING):
                return target
        template, path = clusters.read_template(schedule.template or schedule.cluster)
        info = clusters.up(template, path=path, progress=self._report, backend=self._backend)
        provider = self._backend.provider_for(template)
        return Cluster(info.name, provider=provider, backend=self._backend)

    def _execute(self, schedule: Schedule, firing: Firing, folder: Path) -> dict[str, Any]:
        if find_spec("papermill") is None:
            raise MissingDependencyError(
                "A scheduled notebook is executed by papermill, which is not installed",
                remedy="pip install 'llmops-kernel[lab]'",
            )
        notebook = folder / schedule.path
        output = folder.with_name(f"{firing.id}{NOTEBOOK}")
        self._write(schedule.name, firing.id, output=str(output))
        parameters = folder.with_name(f"{firing.id}.parameters.yaml")
        parameters.write_text(yaml.safe_dump(parameters_of(schedule)), encoding="utf-8")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "papermill", str(notebook), str(output)),
                *("--cwd", str(notebook.parent), "--parameters_file", str(parameters)),
                "--no-progress-bar",
            ],
            env={
                **os.environ,
                GROUP_ENV_VAR: schedule.name,
                HOME_ENV_VAR: str(self._backend.store.root),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us: papermill writes what it has when told to.
        )
        with self._lock:
            self._processes[firing.id] = process
        try:
            _, errors = process.communicate()
        finally:
            with self._lock:
                del self._processes[firing.id]
            parameters.unlink(missing_ok=True)
        runs = self._runs_of(schedule, since_s=firing.started_s)
        if process.returncode == 0:
            return {"state": "SUCCEEDED", "runs": runs}
        state = "STOPPED" if firing.id in self._stopped else "FAILED"
        lines = ["interrupted"] if firing.id in self._stopped else errors.strip().splitlines()
        message = lines[-1] if lines else f"papermill ended with {process.returncode}"
        remedy = f"the cells are in {output}" if output.exists() else ""
        return {"state": state, "runs": runs, "message": message, "remedy": remedy}

    def _runs_of(self, schedule: Schedule, *, since_s: float) -> tuple[str, ...]:
        """Return the runs that a notebook has submitted, by their group."""
        store = self._backend.store
        rows = [row for row in store.listed() if row.created_s >= since_s]
        return tuple(r.run_id for r in rows if store.notes(r.run_id).group == schedule.name)

    def _remove_old_checkouts(self, name: str) -> None:
        kept = {each.id for each in self.store.load(name).firings[-KEPT_CHECKOUTS:]}
        for folder in self.store.folder(name).iterdir():
            if folder.is_dir() and folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a process group, and kill it where that does not help."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
            return
        os.killpg(process.pid, signal.SIGKILL)
