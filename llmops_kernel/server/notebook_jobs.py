"""Lab's page *Notebook Jobs* (jupyter-scheduler) with the schedules of `llmops schedule`.

`jupyter lab --SchedulerApp.scheduler_class=llmops_kernel.server.notebook_jobs.ScheduleBackend`
"""

from __future__ import annotations

import asyncio
import atexit
import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from jupyter_scheduler import models
from jupyter_scheduler.exceptions import InputUriError, SchedulerError
from jupyter_scheduler.executors import DefaultExecutionManager
from jupyter_scheduler.models import DescribeJob, DescribeJobDefinition, JobFeature, Status
from jupyter_scheduler.scheduler import BaseScheduler
from traitlets import Type, Unicode

from llmops_kernel.errors import LLMOpsError, inert
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import Run
from llmops_kernel.services.schedule_source import new_schedule, set_paused
from llmops_kernel.services.scheduler import POLL_S, Scheduler, settle
from llmops_kernel.services.schedules import (
    MAX_NAME,
    NOTEBOOK,
    Firing,
    Schedule,
    check_times,
    short,
)

T = TypeVar("T")
_ID = "schedule-"
"""An id of jupyter-scheduler's has a hyphen in any case."""
_STATUS = {
    "RUNNING": Status.IN_PROGRESS,
    "SUBMITTED": Status.IN_PROGRESS,
    "SUCCEEDED": Status.COMPLETED,
    "FAILED": Status.FAILED,
    "STOPPED": Status.STOPPED,
}


class Features(DefaultExecutionManager):
    """Tells Lab what its forms may offer; executing is our scheduler's."""

    def supported_features(cls) -> dict[JobFeature, bool]:
        offered = {JobFeature.job_name, JobFeature.parameters, JobFeature.stop_job}
        return {each: each in {*offered, JobFeature.delete_job} for each in JobFeature}


class ScheduleBackend(BaseScheduler):
    """A job definition is a schedule, a job is one of its firings; nothing is kept elsewhere.

    A notebook runs at the newest commit of its branch, and not as a copy of the file. "Run now"
    makes a schedule without times.
    """

    db_url = Unicode(help="Not used: schedules are in the home folder of llmops.")
    execution_manager_class = Type(Features, config=True, allow_none=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._backend = Backend()
        self._scheduler = Scheduler(self._backend, report=self.log.info)
        self._store = self._scheduler.store
        atexit.register(self._scheduler.close)

    @property
    def task_runner(self) -> ScheduleBackend:
        """Return what the extension starts with the server."""
        return self

    async def start(self) -> None:
        """Fire the schedules that are due while the server runs."""
        while True:
            try:
                await asyncio.to_thread(self._scheduler.tick)
            except LLMOpsError as error:
                self.log.error("Schedules: %s", error)
            await asyncio.sleep(POLL_S)

    async def _do(self, call: Callable[[], T]) -> T:
        """Call in a thread: a cluster may be asked. The user reads the message and the remedy."""
        try:
            return await asyncio.to_thread(call)
        except LLMOpsError as error:
            # The page has one line for it.
            remedy = f". Try: {error.remedy}" if error.remedy else ""
            raise SchedulerError(inert(f"{error.message}{remedy}")) from None

    # Definitions: schedules with times

    async def create_job_definition(self, model: models.CreateJobDefinition) -> str:
        added = await self._do(lambda: self._add(model, model.schedule or "", model.timezone))
        return f"{_ID}{added.name}"

    def _add(self, model: Any, cron: str, timezone: str | None) -> Schedule:
        if not self.file_exists(model.input_uri):
            raise InputUriError(model.input_uri)
        slug = re.sub(r"[^a-z0-9]+", "-", (model.name or model.input_filename).lower()).strip("-")
        slug = slug[: MAX_NAME - 4].strip("-") or "job"
        taken = set(self._store.names())
        numbered = (f"{slug}-{number}" for number in range(2, 1000))
        name = slug if slug not in taken else next(each for each in numbered if each not in taken)
        words = [f"{key}={value}" for key, value in (model.parameters or {}).items()]
        schedule, _ = new_schedule(
            self._backend,
            name,
            Path(self.root_dir) / model.input_uri,
            cron=cron,
            timezone=timezone or "UTC",
            changes=words,
            only_committed=True,
        )
        return schedule

    async def update_job_definition(
        self, job_definition_id: str, model: models.UpdateJobDefinition
    ) -> None:
        def update() -> None:
            name, now_s = job_definition_id.removeprefix(_ID), time.time()
            known = self._store.load(name)
            cron, zone = model.schedule or known.cron, model.timezone or known.timezone
            if (cron, zone) != (known.cron, known.timezone):
                check_times(cron, zone)
                self._store.update(name, cron=cron, timezone=zone, seen_s=now_s)
            if model.active is not None:
                set_paused(self._backend, name, not model.active, now_s=now_s)

        await self._do(update)

    async def delete_job_definition(self, job_definition_id: str) -> None:
        await self._do(lambda: self._store.remove(job_definition_id.removeprefix(_ID)))

    async def get_job_definition(self, job_definition_id: str) -> DescribeJobDefinition:
        schedule = await self._do(lambda: self._store.load(job_definition_id.removeprefix(_ID)))
        return self._definition(schedule)

    async def list_job_definitions(
        self, query: models.ListJobDefinitionsQuery
    ) -> models.ListJobDefinitionsResponse:
        schedules = await self._do(self._store.all)
        rows = [self._definition(each) for each in schedules if each.cron]
        page, token = _page(rows, query)
        return models.ListJobDefinitionsResponse(
            job_definitions=page, total_count=len(rows), next_token=token
        )

    @cached_property
    def _environment(self) -> str:
        return str(self.environments_manager.list_environments()[0].name)

    def _definition(self, schedule: Schedule) -> DescribeJobDefinition:
        return DescribeJobDefinition(
            **self._common(schedule),
            job_definition_id=f"{_ID}{schedule.name}",
            name=schedule.name,
            tags=[schedule.source],
            schedule=schedule.cron,
            timezone=schedule.timezone,
            create_time=_ms(schedule.created_s),
            update_time=_ms(schedule.seen_s),
            active=not schedule.paused,
        )

    def _common(self, schedule: Schedule) -> dict[str, Any]:
        return {
            "input_filename": Path(schedule.path).name,
            "runtime_environment_name": self._environment,
            "output_formats": [NOTEBOOK[1:]] if schedule.is_notebook else [],
            "parameters": dict(word.split("=", 1) for word in schedule.changes),
        }

    # Jobs: firings

    async def create_job(self, model: models.CreateJob) -> str:
        def run_now() -> str:
            return self._scheduler.fire(self._add(model, "", None).name).id

        return await self._do(run_now)

    async def create_job_from_definition(
        self, job_definition_id: str, model: models.CreateJobFromDefinition
    ) -> str:
        def run_now() -> str:
            known = self._store.load(job_definition_id.removeprefix(_ID))
            if model.parameters and model.parameters != self._common(known)["parameters"]:
                raise SchedulerError("A schedule runs with its own parameters: add another one.")
            return self._scheduler.fire(known.name).id

        return await self._do(run_now)

    def _find(self, job_id: str) -> tuple[Schedule, Firing]:
        for schedule in self._store.all():
            for firing in schedule.firings:
                if firing.id == job_id:
                    return schedule, firing
        raise SchedulerError(f"There is no job {job_id}.")

    async def get_job(self, job_id: str, job_files: bool | None = True) -> DescribeJob:
        def describe() -> DescribeJob:
            schedule, _ = self._find(job_id)
            settle(self._backend, schedule)
            return self._job(*self._find(job_id), with_files=bool(job_files))

        return await self._do(describe)

    async def list_jobs(self, query: models.ListJobsQuery) -> models.ListJobsResponse:
        rows = [
            job
            for job in await self._do(self._jobs)
            if query.status in (None, job.status)
            and query.job_definition_id in (None, job.job_definition_id)
            and job.name.startswith(query.name or "")
            and (job.start_time or 0) >= (query.start_time or 0)
            and set(query.tags or ()) <= set(job.tags or ())
        ]
        page, token = _page(rows, query)
        return models.ListJobsResponse(jobs=page, total_count=len(rows), next_token=token)

    async def count_jobs(self, query: models.CountJobsQuery) -> int:
        return sum(job.status == query.status for job in await self._do(self._jobs))

    def _jobs(self) -> list[DescribeJob]:
        schedules = [settle(self._backend, each) for each in self._store.all()]
        return [self._job(each, firing) for each in schedules for firing in each.firings]

    def _job(self, schedule: Schedule, firing: Firing, *, with_files: bool = True) -> DescribeJob:
        about = "; ".join(filter(None, [firing.message, firing.remedy]))
        source = f"branch {firing.branch}" if firing.branch else "pinned"
        job = DescribeJob(
            **self._common(schedule),
            job_id=firing.id,
            job_definition_id=f"{_ID}{schedule.name}" if schedule.cron else None,
            name=f"{schedule.name} {short(firing.revision)}",
            tags=[f"revision {firing.revision}", source, *firing.runs],
            url=f"/jobs/{firing.id}",
            create_time=_ms(firing.started_s),
            update_time=_ms(firing.ended_s or firing.started_s),
            start_time=_ms(firing.started_s),
            end_time=_ms(firing.ended_s) if firing.ended_s else None,
            status=_STATUS[firing.state],
            status_message=about or None,
        )
        if with_files:
            self.add_job_files(job)
        return job

    async def stop_job(self, job_id: str) -> None:
        def stop() -> None:
            _, firing = self._find(job_id)
            if not self._scheduler.stop(job_id) and firing.state == "RUNNING":
                raise SchedulerError("Another process executes it: end it there.")
            if firing.state == "SUBMITTED":
                Run(self._backend, firing.runs[0]).stop()

        await self._do(stop)

    async def delete_job(self, job_id: str) -> None:
        """Remove it from the list; runs and executed notebooks are kept."""

        def forget() -> None:
            schedule, firing = self._find(job_id)
            if firing.state == "RUNNING":
                self._scheduler.stop(job_id)
            kept = self._store.change(schedule.name, lambda known: known.without_firing(job_id))
            if not kept.cron and not kept.firings:
                self._store.remove(kept.name)

        await self._do(forget)

    async def update_job(self, job_id: str, model: models.UpdateJob) -> None:
        raise SchedulerError("A job is named by its schedule and revision.")

    def get_staging_paths(self, model: DescribeJob | DescribeJobDefinition) -> dict[str, str]:
        if not isinstance(model, DescribeJob):
            return {}
        schedule, firing = self._find(model.job_id)
        paths = {"input": str(self._store.folder(schedule.name) / firing.id / schedule.path)}
        return {**paths, NOTEBOOK[1:]: firing.output} if firing.output else paths


def _page(rows: list[Any], query: Any) -> tuple[Sequence[Any], str | None]:
    """Return the rows that a query asks for, in its order, and where the next page begins."""
    for field in reversed(query.sort_by or ()):
        values = [getattr(row, field.name, None) for row in rows]
        keyed = sorted(
            zip(values, range(len(rows)), rows, strict=True),
            key=lambda each: (each[0] is not None, each[0], each[1]),
            reverse=field.direction is models.SortDirection.desc,
        )
        rows = [row for _, _, row in keyed]
    start, count = int(query.next_token or 0), int(query.max_items or models.DEFAULT_MAX_ITEMS)
    more = str(start + count) if start + count < len(rows) else None
    return rows[start : start + count], more


def _ms(time_s: float) -> int:
    return int(time_s * 1000)
