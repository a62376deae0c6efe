"""Ray heads on this machine that outlive the process that starts them."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from llmops_kernel.config.models.cluster import AnyTemplate, ClusterTemplate
from llmops_kernel.errors import (
    ClusterDeadError,
    ClusterError,
    ClusterNotFoundError,
    ClusterStartError,
    ClusterStateError,
    ClusterUnreachableError,
    ConfigError,
)
from llmops_kernel.hardware.load import is_loaded, patience_s
from llmops_kernel.providers.capabilities import require_possible
from llmops_kernel.providers.dashboard import Dashboard
from llmops_kernel.providers.local import launch, start
from llmops_kernel.providers.local.cleanup import clear, end_processes, exited_part, job_logs
from llmops_kernel.providers.local.processes import (
    cluster_processes,
    head_process,
    job_processes,
)
from llmops_kernel.providers.local.record import (
    ClusterFolder,
    Definition,
    HeadRecord,
    cluster_folder,
    cluster_names,
    definition_of,
    difference,
    recordable,
    targets_folder,
)
from llmops_kernel.providers.local.status import announcement, look, preview_of
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterSize,
    ClusterState,
    Connection,
    JobLogs,
    Progress,
)
from llmops_kernel.store import paths

_ANSWER_TIMEOUT_S = 60.0
_SAY_EVERY_S = 10.0
_NAMED = 5


class LocalProvider(ClusterProvider):
    """Heads are found by their record in `<home>/clusters/<name>/`; no daemon of ours runs."""

    name = "local"
    shares_disk = True

    def __init__(
        self,
        home: Path | None = None,
        *,
        start_timeout_s: float = 180.0,
        answer_timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> None:
        """The limits are of a machine that is not busy; on a busy one they grow with its load."""
        self._home = (home or paths.home()).absolute()
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s

    def up(
        self,
        template: AnyTemplate,
        *,
        template_path: Path | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Attach to the head of that name when it lives, else start one.

        A local start takes seconds and is always waited for. Safe from several processes at
        once: one starts, the others wait and attach.
        Raises ClusterStartError, ClusterUnreachableError, MissingDependencyError.
        """
        assert isinstance(template, ClusterTemplate)
        return self._up(Definition(template=template, path=template_path), progress=progress)

    def _up(self, wanted: Definition, *, progress: Progress | None) -> ClusterInfo:
        report = progress or _silent
        template = wanted.template
        folder = self._folder(template.name)
        folder.create()
        if not self._is_ready(folder):
            with folder.lock(
                timeout_s=patience_s(self._start_timeout_s + self._answer_timeout_s),
                waiting=lambda: report("Another process is starting or stopping it; waiting"),
            ):
                if not self._attach(folder, report=report):
                    self._clean_up_dead(folder, report=report)
                    self._start(wanted, folder=folder, report=report)
        info = self.get(template.name)
        unlike = difference(folder.read(), template)
        return info.model_copy(update={"message": unlike}) if unlike else info

    def get(self, name: str) -> ClusterInfo:
        """Return the current state. A busy head gets 5 s to answer; a dead one is reported at once.

        Raises ClusterNotFoundError.
        """
        folder = self._folder(name)
        return look(self._record(name), folder)

    def names(self) -> tuple[str, ...]:
        return tuple(cluster_names(self._home))

    def scrape_config(self) -> dict[str, Any]:
        """Return the entry of `scrape_configs` that reads Ray's list of endpoints."""
        return {
            "job_name": "llmops-local",
            "file_sd_configs": [
                {"files": [str(targets_folder(self._home) / "*.json")], "refresh_interval": "10s"}
            ],
            "relabel_configs": [
                # Ray lists services that have chosen a port of their own by port 0.
                {"source_labels": ["__address__"], "regex": ".*:0", "action": "drop"},
            ],
        }

    def job_logs(self, name: str, submission_id: str) -> JobLogs:
        """Return the log in Ray's session, and the one that is kept when the head ends."""
        with suppress(ConfigError):
            return job_logs(self._folder(name), submission_id)
        return JobLogs()

    def list(self) -> list[ClusterInfo]:
        return [self.get(name) for name in self.names()]

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        """Return what an action would do.

        Raises ClusterNotFoundError, and ClusterStateError if it is not possible now.
        """
        folder = self._folder(name)
        record = self._record(name)
        info = look(record, folder)
        require_possible(info, action)
        jobs = None
        if info.is_ready:
            with Dashboard(_connection(record, folder)) as dashboard:
                jobs = dashboard.jobs()
        return preview_of(info, action, jobs=jobs, num_processes=len(cluster_processes(record)))

    def suspend(self, name: str) -> None:
        """Stop it and keep its definition, which is what `down` leaves."""
        self.down(name)

    def resume(
        self, name: str, *, progress: Progress | None = None, wait: bool = True
    ) -> ClusterInfo:
        """Start it again from its definition; attach if it is alive.

        `env` is not on disk: it is read again from the template's file, and a message says so if
        that is not possible. Raises ClusterNotFoundError, ConfigError, and what `up` raises.
        """
        return self._up(definition_of(self._record(name)), progress=progress)

    def check_scale(self, name: str, size: ClusterSize) -> None:
        """Raise what `scale` refuses: worker groups, numbers that no template allows, its state."""
        if size.workers:
            raise ClusterStateError(
                f"Cluster {name!r} is local: it has no worker groups, but one head",
                remedy=f"llmops scale {name} --num-cpus N --num-gpus N",
            )
        definition_of(self._record(name)).resized(num_cpus=size.num_cpus, num_gpus=size.num_gpus)
        require_possible(self.get(name), ClusterAction.SCALE)

    def scale(
        self,
        name: str,
        size: ClusterSize,
        *,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Restart the head with other numbers; all that runs on it is stopped.

        Raises ClusterNotFoundError, ClusterStateError, ConfigError, and what `up` raises.
        """
        self.check_scale(name, size)
        num_cpus, num_gpus = size.num_cpus, size.num_gpus
        wanted = definition_of(self._record(name)).resized(num_cpus=num_cpus, num_gpus=num_gpus)
        info = self.get(name)
        if num_cpus in (None, info.num_cpus) and num_gpus in (None, info.num_gpus):
            return info.model_copy(update={"message": "It already has these numbers"})
        if progress is not None:
            progress(f"Stopping cluster {name}, to start it with the new numbers")
        self.down(name)
        return self._up(wanted, progress=progress)

    def delete(self, name: str) -> None:
        """Stop it, then forget its record and its logs. Runs stay.

        Raises ClusterNotFoundError, ClusterStateError, and what `down` raises.
        """
        folder = self._folder(name)
        self.down(name)
        with folder.lock(timeout_s=60.0):
            record = folder.read()
            if record is not None and record.stopped_s is None:
                raise ClusterStateError(
                    f"Cluster {name!r} was started again while it was being deleted",
                    remedy=f"`llmops delete {name}` once more, or keep the new one",
                )
            folder.remove()

    def down(self, name: str) -> None:
        """Stop exactly the processes of this head, whatever state it is in; twice is no error.

        Raises ClusterNotFoundError, and ClusterError when something would not die.
        """
        folder = self._folder(name)
        record = self._record(name)
        if record.is_elsewhere:
            raise ClusterError(
                f"Cluster {name!r} was started on host {record.host}; this is"
                f" {socket.gethostname()}",
                remedy=f"run `llmops down {name}` there, or `llmops resume {name}` to start one"
                f" here",
            )
        self._record_stopping(record, folder)
        # Before taking the lock: a start that is in progress ends when its head does.
        end_processes(record)
        with folder.lock(timeout_s=60.0):
            clear(record, folder)
            now = folder.read()
            if now is not None and now.temp_dir == record.temp_dir and now.stopped_s is None:
                folder.write(now.model_copy(update={"stopped_s": time.time()}))

    def _record_stopping(self, record: HeadRecord, folder: ClusterFolder) -> None:
        """Record the stop, so that the end of its processes is not reported as a crash."""
        # Before there is a process its starter is about to write the record itself.
        if record.pid is not None and record.stopped_s is None:
            with suppress(ClusterError):  # A full disk must not keep it from being stopped.
                folder.write(record.model_copy(update={"stopping_s": time.time()}))

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Wait for a start in another process, or for a head that is too busy to answer.

        Raises ClusterNotFoundError, ClusterDeadError, ClusterStartError.
        """
        began_s = said_s = time.monotonic()
        while (info := self.get(name)).state is ClusterState.STARTING:
            passed_s = time.monotonic() - began_s
            if passed_s > (timeout_s or patience_s(self._start_timeout_s)):
                raise ClusterStartError(
                    f"Cluster {name!r} was not ready within {passed_s:.0f} s: {info.message}",
                    remedy=info.remedy or f"`llmops status {name}` shows its state",
                )
            if progress is not None and time.monotonic() - said_s > _SAY_EVERY_S:
                said_s = time.monotonic()
                progress(f"Cluster {name} is not ready yet ({passed_s:.0f} s): {info.message}")
            time.sleep(0.2)
        if not info.is_ready:
            raise ClusterDeadError(
                f"Cluster {name!r} is {info.state}: {info.message}", remedy=info.remedy
            )
        return info

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        """Raise ClusterStateError: nothing suspends a local cluster."""
        raise ClusterStateError(
            f"Cluster {name!r} is local: no idle guard watches it",
            remedy="nothing to do; it keeps running until `llmops suspend`",
        )

    def connect(self, name: str) -> Connection:
        """Connect to the cluster. Raises ClusterNotFoundError, ClusterDeadError."""
        folder = self._folder(name)
        record = self._record(name)
        if record.stopped_s is not None:
            raise ClusterNotFoundError(
                f"Cluster {name!r} is stopped", remedy=f"llmops resume {name}"
            )
        if head_process(record) is None:
            info = look(record, folder)
            raise ClusterDeadError(info.message, remedy=info.remedy)
        return _connection(record, folder)

    def _folder(self, name: str) -> ClusterFolder:
        return cluster_folder(self._home, name)

    def _record(self, name: str) -> HeadRecord:
        record = self._folder(name).read()
        if record is None:
            known = ", ".join(cluster_names(self._home)) or "none yet"
            raise ClusterNotFoundError(
                f"There is no local cluster {name!r}; known: {known}", remedy=f"llmops up {name}"
            )
        return record

    def _is_ready(self, folder: ClusterFolder) -> bool:
        record = folder.read()
        return record is not None and look(record, folder, wait_s=1.0).is_ready

    def _attach(self, folder: ClusterFolder, *, report: Progress) -> bool:
        """Wait for a head that lives; False when there is none.

        Its starter may have been killed before it was ready, or it may be too busy to answer.
        """
        record = folder.read()
        if record is None or record.stopped_s is not None or head_process(record) is None:
            return False
        report(f"A head is running (pid {record.pid}); waiting until it answers")
        is_up = record.ray_address is not None
        timeout_s = self._answer_timeout_s if is_up else self._start_timeout_s
        try:
            start.wait_until_ready(
                record,
                folder,
                connection=_connection(record, folder),
                timeout_s=timeout_s,
                report=report,
            )
        except start.StartCutShort:
            if head_process(record) is None:
                return False
            return self._restarts(record, folder, report=report)
        return True

    def _restarts(
        self, record: HeadRecord, folder: ClusterFolder, *, report: Progress
    ) -> Literal[False]:
        """End a head that takes no work, so that another is started: only where no job is in it.

        Raises ClusterUnreachableError where one is.
        """
        lacks = look(record, folder).message
        if jobs := job_processes(record):
            pids = ", ".join(str(process.pid) for process in jobs[:_NAMED])
            raise ClusterUnreachableError(
                f"The head of cluster {record.name!r} is running (pid {record.pid}), but takes no"
                f" submissions: {lacks}. It is not started again, because jobs are running in it"
                f" (processes {pids}{', ...' if len(jobs) > _NAMED else ''})",
                remedy=f"wait for them; or `llmops suspend {record.name}`, which ends them, then"
                f" `llmops resume {record.name}`",
            )
        report(f"The head takes no submissions ({lacks}) and no job is in it: starting it again")
        clear(record, folder)
        folder.write(record.model_copy(update={"stopped_s": time.time()}))
        return False

    def _clean_up_dead(self, folder: ClusterFolder, *, report: Progress) -> None:
        record = folder.read()
        if record is None or record.is_elsewhere:
            return
        if record.stopped_s is None:
            why = exited_part(record, folder) or "its processes are gone"
            report(f"The previous head died ({why}); cleaning up")
        clear(record, folder)

    def _start(self, wanted: Definition, *, folder: ClusterFolder, report: Progress) -> None:
        launch.check_installed()
        template = wanted.template
        for last_try in (False, True):
            record = self._new_record(wanted)
            # Of their own choice is safer on a quiet machine: nobody can take them in between.
            ports = launch.agent_ports() if last_try or is_loaded() else None
            try:
                self._start_once(record, template, folder=folder, report=report, ports=ports)
                return
            except start.StartCutShort as error:
                # A chosen port was taken in between, or a fixed limit of Ray's was too short.
                if last_try or not error.worth_another_try or template.dashboard_port:
                    raise error.as_start_error(folder) from None
                report(f"{error.reason}; trying once more")

    def _start_once(
        self,
        record: HeadRecord,
        template: ClusterTemplate,
        *,
        folder: ClusterFolder,
        report: Progress,
        ports: tuple[int, int, int, int] | None,
    ) -> None:
        """Leaves nothing behind when it fails or is interrupted."""
        try:
            launch.new_secrets(folder, template)
            folder.write(record)
            report(f"Starting Ray {record.ray_version}, dashboard {record.dashboard_url}")
            if warning := launch.small_shm(template):
                report(warning)
            env = launch.environment(
                os.environ, record=record, folder=folder, template=template, home=self._home
            )
            line = launch.command(record, template, ports=ports)
            record = launch.spawn(line, env, record=record, folder=folder)
            start.wait_for_start(
                record,
                folder,
                connection=_connection(record, folder),
                packages=paths.packages(self._home),
                timeout_s=self._start_timeout_s,
                report=report,
            )
            if later := announcement(record.template.get("warm") or {}):
                report(later)
        except BaseException:
            clear(record, folder)
            folder.write(record.model_copy(update={"stopped_s": time.time()}))
            raise

    def _new_record(self, wanted: Definition) -> HeadRecord:
        template = wanted.template
        return HeadRecord(
            name=template.name,
            host=socket.gethostname(),
            dashboard_port=launch.dashboard_port(template),
            temp_dir=launch.new_temp_dir(template.name),
            started_s=time.time(),
            ray_version=importlib.metadata.version("ray"),
            template=recordable(template),
            template_path=wanted.path,
            env_names=tuple(sorted(template.env)),
            note=wanted.note,
        )


def _connection(record: HeadRecord, folder: ClusterFolder) -> Connection:
    try:
        token = folder.token.read_text()
    except OSError as error:
        raise ClusterDeadError(
            f"The token of cluster {record.name!r} cannot be read ({folder.token}):"
            f" {error.strerror}",
            remedy=f"`llmops suspend {record.name}`, then `llmops resume {record.name}`",
        ) from error
    return Connection(dashboard_url=record.dashboard_url, token=token)


def _silent(line: str) -> None:
    """Nobody listens."""
