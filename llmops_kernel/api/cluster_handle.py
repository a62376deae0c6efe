"""The handle of a cluster, and a list of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from llmops_kernel.api.environment import default_progress
from llmops_kernel.api.run_handle import Run
from llmops_kernel.api.run_list import RunList
from llmops_kernel.api.sweeps import Sweep
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import Job
from llmops_kernel.jobs.engines import EndedEngines
from llmops_kernel.jobs.submit import Submission
from llmops_kernel.kinds.reading import ConfigLike
from llmops_kernel.providers.capabilities import EditEffect
from llmops_kernel.providers.protocol import (
    ClusterInfo,
    ClusterSize,
    EngineInfo,
    Progress,
)
from llmops_kernel.services import clusters, submission, templates
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.queue import QueuedRun, queue
from llmops_kernel.services.run_list import newest
from llmops_kernel.services.scoring import standing
from llmops_kernel.services.search_space import Search, words_of
from llmops_kernel.services.sweep_plan import Better, load_sweep, plan_sweep
from llmops_kernel.store.record import Priority


class Cluster(clusters.Cluster):
    """A cluster by its name. Keeps no state: each property and method asks the cluster again."""

    @property
    def dashboard_url(self) -> str | None:
        """Ray's own dashboard; it asks for the cluster's token."""
        return self.info.dashboard_url

    def status(self) -> str:
        """Return one line: state, nodes, CPUs, GPUs, jobs, dashboard."""
        return describe(self.info)

    def submit(
        self,
        config: ConfigLike,
        *,
        workspace: Path | str | None = None,
        overrides: Overrides = (),
        strict: bool = False,
        group: str = "",
        project: str = "",
        priority: Priority = "normal",
        progress: Progress | None = None,
        **settings: Any,
    ) -> Run:
        """Submit a run and return as soon as Ray has accepted it.

        `config` is a `*.train.yaml` file, a dict or a `TrainingConfig`; or a script of yours:
        `submit("train.py", args=["--lr", "1e-4"], num_workers=2)`, a `*.script.yaml` file or a
        `ScriptConfig`; or a score config, as for `score`. Changes are given as
        keywords (`learning_rate=1e-4`, `method="full"`) or as
        `overrides=["optimizer.learning_rate=1e-4"]`. `workspace` is the folder of code and
        data to upload with the run; relative paths start there; default: the folder of the
        config file, else the current folder. A training that the planner expects not to fit
        in memory is warned of, and with `strict` refused. `group` and `project` are the
        run's (not the `tracking.project` of its config). Where it
        has to wait, a run of `high` priority goes first, and one of `low` gives its place back
        at its checkpoint to others that wait. Raises ConfigError with all mistakes at once,
        before anything is started or written.
        """
        wanted = submission.from_config(
            config, workspace=workspace, overrides=overrides, settings=settings
        )
        request = replace(wanted, strict=strict, group=group, project=project, priority=priority)
        return self._submitted(request, progress)

    def score(
        self,
        config: ConfigLike,
        *,
        workspace: Path | str | None = None,
        overrides: Overrides = (),
        make_env: bool = True,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Run:
        """Submit a score run: a `*.score.yaml` file or a `ScoreConfig`.

        As `submit`: on a local cluster vLLM's own environment is made first where the config may
        use it, once a machine. With `make_env=False` Transformers is used without one. Raises
        ConfigError with all mistakes at once, MissingDependencyError.
        """
        wanted = submission.from_config(
            config, workspace=workspace, overrides=overrides, settings=settings
        )
        return self._submitted(replace(wanted, prepares=make_env), progress)

    def _submitted(self, wanted: Submission, progress: Progress | None) -> Run:
        record = submission.submit(self, wanted, progress=progress or default_progress())
        return Run(self.backend, record.run_id, provider=self.provider)

    def queue(self) -> list[QueuedRun]:
        """Return the runs of all users that wait here, the next one first, then those that run.

        `run.queue(priority="high")` and `run.queue(before=other)` change the order.
        """
        return queue(self)

    def sweep(
        self,
        config: ConfigLike,
        over: Mapping[str, Any],
        *,
        random: int | None = None,
        optuna: int | None = None,
        seed: int = 0,
        metric: str | None = None,
        better: Better | None = None,
        parallel: int | None = None,
        workspace: Path | str | None = None,
        progress: Progress | None = None,
    ) -> Sweep:
        """Run a config with each combination of values, and return when all have ended.

        `over={"optimizer.learning_rate": [1e-4, 3e-4], "method.r": [8, 16]}`; with `random=N`
        so many random trials, and values may be ranges such as `"1e-5..1e-3:log"`; with `optuna=N`
        Optuna proposes so many from what the earlier ones gave, and stops those that are worse
        than the median at the same step. Each trial is an ordinary run. `metric` is the figure to
        compare: by default the held-out loss if there are evaluation rows, else the training
        loss. `parallel` trials run at a time, by default as many as the cluster has GPUs for, on
        a machine of CPUs one. Every trial is checked before the first one starts. Raises
        ConfigError with the mistakes of all.

        Ctrl-C leaves what runs running; `cluster.attach_sweep("last").resume()` goes on with what
        is missing.
        """
        spec = plan_sweep(
            self,
            config,
            Search(words_of(over), random=random, optuna=optuna, seed=seed),
            workspace=workspace,
            metric=metric,
            better=better,
            parallel=parallel,
        )
        return Sweep(self.backend, spec).resume(progress=progress)

    def attach_sweep(self, ref: str = "last") -> Sweep:
        """Return a sweep by its id, a unique beginning of it, or `last`; starts nothing.

        Raises RunNotFoundError.
        """
        return Sweep(self.backend, load_sweep(self.backend.store, ref))

    def jobs(self) -> list[Job]:
        """Ray's list of its jobs, newest first."""
        with self.client() as client:
            return client.list()

    def runs(self, *, limit: int | None = 20, all: bool = False) -> RunList:
        """Runs that were submitted to this cluster, newest first; `all` includes hidden ones."""
        listing = newest(self.backend.store, cluster=self.name, hidden=all, limit=limit)
        return RunList(self.backend, listing)

    def engines(self) -> tuple[EngineInfo, ...] | None:
        """Models that score runs and chats have loaded here; None when Ray did not answer."""
        return self.info.engines

    def end_idle_engines(self) -> EndedEngines:
        """End the loaded models that have no work, for their memory and GPUs. Raises ClusterError.

        Without this call one ends when nobody has used it for `engine.keep_s` seconds.
        """
        return standing.end_idle(self)

    def down(self, *, force: bool = False) -> None:
        """Stop the cluster. Other processes are not affected; its runs are kept on disk."""
        clusters.stop(self, "down", force=force, progress=default_progress())

    def suspend(self, *, force: bool = False) -> None:
        """Stop its processes and keep its definition; `resume` starts it again.

        Journals and logs of its runs are archived first, where they are only on the cluster.
        Raises HistoryError when that fails; `force` continues without them. The same holds for
        `down` and `delete`.
        """
        clusters.stop(self, "suspend", force=force, progress=default_progress())

    def resume(
        self, *, wait: bool = False, force: bool = False, progress: Progress | None = None
    ) -> Cluster:
        """Start it again as it was defined; like `llmops.up`, waits for local clusters only.

        `preview("resume")` and `preview("scale")` say where a queue replaces the head for that.
        Its runs are archived then. Raises HistoryError when that fails; `force` continues without.
        """
        clusters.resume(self, wait=wait, force=force, progress=progress or default_progress())
        return self

    def scale(
        self,
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
        wait: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Cluster:
        """Change its size; on Kubernetes returns at once unless `wait`.

        A local cluster takes `num_cpus` and `num_gpus`, and is restarted, which stops what runs
        on it. One on Kubernetes takes replicas of its worker groups: `workers={"h100": 4}`;
        its runs are archived as for `resume`.
        """
        size = ClusterSize(num_cpus=num_cpus, num_gpus=num_gpus, workers=workers)
        progress = progress or default_progress()
        clusters.scale(self, size, wait=wait, force=force, progress=progress)
        return self

    def wait(self, *, timeout_s: float | None = None, progress: Progress | None = None) -> Cluster:
        """Block until it is ready, and report what it waits for.

        Raises ClusterStartError with the reasons when the time is up, or when it
        cannot become ready without a change.
        """
        progress = progress or default_progress()
        self.provider.wait(self.name, timeout_s=timeout_s, progress=progress)
        return self

    def keep(self, *, for_s: float) -> Cluster:
        """Keep idle guards from suspending it for `for_s` seconds from now; 0 ends that."""
        self.provider.keep(self.name, for_s=for_s)
        return self

    def diff(self, template: str | Path | None = None) -> EditEffect:
        """Return what applying a template would change: restarts, stopped jobs.

        `template` is a name or a file, by default the template of the cluster's own name.
        """
        return templates.effect(self, template)

    def apply(
        self,
        template: str | Path | None = None,
        *,
        force: bool = False,
        lose_history: bool = False,
    ) -> Cluster:
        """Apply a template to the cluster; see `diff` first.

        `force` takes ownership of fields that other clients have set. Where it restarts the head,
        runs are archived first. Raises HistoryError when that fails; `lose_history` continues.
        """
        templates.apply(self, template, force=force, lose_history=lose_history)
        return self

    def delete(self, *, force: bool = False) -> None:
        """Stop it and delete its definition and logs. Its runs are kept on disk."""
        clusters.stop(self, "delete", force=force, progress=default_progress())

    def __repr__(self) -> str:
        return f"<Cluster {describe(self.info)}>"

    def _repr_html_(self) -> str:
        return describe_html(self.info)


# --- One line about a cluster, as text and as HTML ---


def describe(info: ClusterInfo, *, with_url: bool = True) -> str:
    """Return one line: `local: ready, 1 node, 2 CPUs, 0 GPUs, 1 job, warm, http://127.0.0.1:8265`."""
    parts = [f"{info.name}: {info.state}"]
    if info.is_ready:
        counts = {"node": info.num_nodes, "CPU": info.num_cpus, "GPU": info.num_gpus}
        counts["job"] = info.jobs_running
        parts += [_counted(noun, count) for noun, count in counts.items() if count is not None]
        if info.warm:
            is_sentence = info.warm.startswith(("warm", "cold"))
            parts.append(info.warm if is_sentence else f"fork server {info.warm}")
    elif info.message:
        parts.append(info.message)
    if info.workers_wanted and info.workers_ready != info.workers_wanted:
        parts.insert(1, f"{info.workers_ready or 0} of {info.workers_wanted} workers")
    if with_url and info.is_ready and info.dashboard_url and info.context is None:
        parts.append(info.dashboard_url)
    return ", ".join(parts)


def describe_html(info: ClusterInfo) -> str:
    # Behind a Kubernetes API server the address wants credentials that no browser has.
    url = info.dashboard_url if info.context is None else None
    link = f', <a href="{escape(url)}" target="_blank">dashboard</a>' if url else ""
    return f"Cluster <b>{escape(describe(info, with_url=False))}</b>{link}"


def _counted(noun: str, count: float) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


# --- Several clusters at once: a list that prints one line a cluster ---


class ClusterList(list[Cluster]):
    """Prints one line a cluster."""

    def __init__(
        self, backend: Backend, clusters: Iterable[Cluster], *, errors: Iterable[LLMOpsError] = ()
    ) -> None:
        super().__init__(clusters)
        self._backend = backend
        self.errors = tuple(errors)
        """Errors of contexts and providers whose clusters could not be listed."""

    def __repr__(self) -> str:
        return "\n".join(map(describe, self._infos())) or "no cluster; llmops.up()"

    def _repr_html_(self) -> str:
        lines = map(describe_html, self._infos())
        return "<br>".join(lines) or "no cluster; <code>llmops.up()</code>"

    def _infos(self) -> list[ClusterInfo]:
        """Query all in parallel: one by one, two hundred clusters would take minutes."""
        now = {info.name: info for info in self._backend.survey().infos}
        return [now[cluster.name] for cluster in self if cluster.name in now]
