"""The state of a local head, determined reliably and within a few seconds, and its actions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from llmops_kernel.config.models.section import MetricsPages
from llmops_kernel.hardware import loopback
from llmops_kernel.hardware.load import busy_words, patience_s
from llmops_kernel.providers.dashboard import Dashboard, Usage, described_job, is_active
from llmops_kernel.providers.local.cleanup import exited_part, log_tail, unregistered
from llmops_kernel.providers.local.launch import warm_folder
from llmops_kernel.providers.local.processes import head_process
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterState,
    Connection,
    KeptInfo,
)
from llmops_kernel.store.compiled_ops import USUAL_TIME, compiling_since_s, will_compile
from llmops_kernel.store.kept_models import KeptModels
from llmops_kernel.store.paths import cache
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.keeper import ask
from llmops_kernel.warm.launcher import is_alive

PROVIDER = "local"
_PATIENCE_S = 5.0
_LONGEST_FACTOR = 4.0  # Of a machine that is very busy; who asks is waiting for the answer.
# Whoever was stopping it may have been killed: after this long it is what its processes are.
_STOP_S = 60.0


def look(record: HeadRecord, folder: ClusterFolder, *, wait_s: float = _PATIENCE_S) -> ClusterInfo:
    """Check the processes, then what a submission needs, which gets `wait_s` to answer.

    On a busy machine it gets up to four times as long.
    """
    if record.stopped_s is not None:
        return _info(record, ClusterState.STOPPED, remedy=f"llmops resume {record.name}")
    if record.stopping_s is not None and time.time() - record.stopping_s < _STOP_S:
        return _info(record, ClusterState.STOPPING)
    if head_process(record) is None:
        # A start between its two records has no process yet, but holds the lock.
        if record.pid is None and folder.is_locked():
            return _info(record, ClusterState.STARTING, message="its process is being started")
        return _dead(record, folder)
    if record.ray_address is None:
        return _info(record, ClusterState.STARTING, message=start_phases(record)[-1])
    return _ask(record, folder, patience_s=patience_s(wait_s, most=_LONGEST_FACTOR))


def start_phases(record: HeadRecord) -> tuple[str, ...]:
    """Return the phases of a start that it has reached; the last one is what it does now."""
    logs = record.session / "logs"
    reached = {
        "Ray is starting": True,
        "GCS is starting": (logs / "gcs_server.out").exists(),
        "dashboard and node are starting": (logs / "raylet.out").exists(),
        "both are up, the Jobs API is starting": record.ray_address is not None,
    }
    return tuple(phase for phase, is_reached in reached.items() if is_reached)


def _ask(record: HeadRecord, folder: ClusterFolder, *, patience_s: float) -> ClusterInfo:
    deadline = time.monotonic() + patience_s
    connection = Connection(dashboard_url=record.dashboard_url, token=_token(folder))
    with Dashboard(connection) as dashboard:
        while True:
            is_same_session = dashboard.session_name() == record.session_name
            usage = dashboard.usage(ready_s=record.ready_s) if is_same_session else Usage()
            missing = _missing_part(record, usage, answers=is_same_session)
            if not missing:
                return _ready(record, usage)
            # A part that died takes the head with it, about a second later.
            if head_process(record) is None:
                return _dead(record, folder)
            if time.monotonic() > deadline:
                return _silent(record, usage, missing=missing, patience_s=patience_s)
            time.sleep(0.2)


def _missing_part(record: HeadRecord, usage: Usage, *, answers: bool) -> str:
    if not answers:
        return f"the dashboard {record.dashboard_url} does not answer"
    if not usage.num_nodes:
        return "Ray's node list does not answer"
    return unready(record, jobs_answer=usage.jobs_total is not None)


def unready(record: HeadRecord, *, jobs_answer: bool) -> str:
    """Return what a submission needs and does not have; empty if it has all of it."""
    if not jobs_answer:
        return f"Ray's Jobs API at {record.dashboard_url} does not answer"
    return _agent_trouble(record) or unregistered(record)


def _agent_trouble(record: HeadRecord) -> str:
    """Return why the agent on the head's node, which starts drivers, cannot; empty if it can."""
    name = "the agent that starts drivers"
    files = list(record.session.glob("dashboard_agent_listen_port_*"))
    if not files:  # Where files were removed, who knows its port only by one cannot ask it.
        return "" if record.is_tidied else f"{name} is not up yet"
    with suppress(OSError, ValueError):
        url = f"http://{loopback.ADDRESS}:{int(files[0].read_text())}"
        with Dashboard(Connection(dashboard_url=url)) as agent:
            return "" if agent.is_healthy() else f"{name} does not answer ({agent.trouble})"
    return f"{name} has no port"


def _ready(record: HeadRecord, usage: Usage) -> ClusterInfo:
    tidied, remedy = "", ""
    if record.is_tidied:
        # Ray does not unpack a package again that it has unpacked before.
        tidied = f"files of this cluster in {record.temp_dir} were removed, so runs may fail"
        remedy = f"`llmops suspend {record.name}`, then `llmops resume {record.name}`; and keep"
        remedy += f" what tidies {record.temp_dir.parent} on this host from doing so"
    message = "; ".join(filter(None, [record.note, compilation_state(), tidied]))
    return _info(record, ClusterState.READY, message=message, remedy=remedy, usage=usage)


def _silent(record: HeadRecord, usage: Usage, *, missing: str, patience_s: float) -> ClusterInfo:
    """Report a head that is alive but takes no work: some may continue in it, so it is not dead."""
    busy = busy_words()
    message = f"{missing} (asked for {patience_s:.0f} s); the head is running (pid {record.pid})"
    return _info(
        record,
        ClusterState.STARTING,
        message="; ".join(filter(None, [message, busy])),
        remedy="wait until the machine is less busy" * bool(busy)
        or f"`llmops up {record.name}` waits for it, and starts it again where no run is in it",
        usage=usage,
    )


def _dead(record: HeadRecord, folder: ClusterFolder) -> ClusterInfo:
    if record.is_elsewhere:
        reason = f"was started on host {record.host} and cannot be seen from here"
    elif part := exited_part(record, folder):
        reason = f"died: {part}"
    else:
        reason = f"died: its head (pid {record.pid}) is gone"
    return _info(
        record,
        ClusterState.DEAD,
        message=f"Cluster {record.name!r} {reason}",
        remedy=f"`llmops resume {record.name}` starts a new one",
    ).model_copy(update={"log_tail": log_tail(record, folder)})


def _info(
    record: HeadRecord,
    state: ClusterState,
    *,
    message: str = "",
    remedy: str = "",
    usage: Usage | None = None,
) -> ClusterInfo:
    lives = state in (ClusterState.READY, ClusterState.STARTING)
    is_ready = state is ClusterState.READY
    return ClusterInfo(
        name=record.name,
        provider=PROVIDER,
        state=state,
        message=message,
        remedy=remedy,
        dashboard_url=record.dashboard_url if lives else None,
        runs_url=_runs_url(record),
        ray_address=record.ray_address if lives else None,
        created_s=record.started_s,
        actions=possible_actions(record, state),
        ray_version=record.ray_version,
        **asdict(warm_status(record) if is_ready else WarmStatus()),
        **(usage or Usage()).figures(),
    )


def _runs_url(record: HeadRecord) -> str | None:
    try:
        pages = MetricsPages.model_validate(record.template.get("metrics") or {})
    except ValidationError:
        return None  # Another release wrote it.
    return MetricsPages.runs_url(pages.environment(), record.name)


def _token(folder: ClusterFolder) -> str | None:
    try:
        return folder.token.read_text()
    except OSError:
        return None


# --- State of a local head's fork server ---


_ANSWER_S = 0.5


@dataclass(frozen=True, kw_only=True)
class WarmStatus:
    """The fields of ClusterInfo that begin with `warm`."""

    warm: str = ""
    warm_modules: int | None = None
    warm_missing: tuple[str, ...] = ()
    warm_forked: int | None = None
    warm_cold_starts: int | None = None
    warm_cold_reason: str = ""
    warm_kept: tuple[KeptInfo, ...] = ()


def warm_status(record: HeadRecord) -> WarmStatus:
    """Return the status for a living head on this machine.

    Takes up to 0.5 s if the server hangs.
    """
    settings = record.template.get("warm")
    if not isinstance(settings, dict):
        return WarmStatus(warm="off (the head is older than the fork server)")
    if not settings.get("enabled"):
        return WarmStatus(warm="off (template)")
    folder = warm_folder(record)
    answer = ask(folder, timeout_s=_ANSWER_S)
    report = folder.read_report() if answer else {}
    cold = [event for event in folder.read_events() if event.get("event") == "cold"]
    return WarmStatus(
        warm="warm" if answer else _why_not(folder),
        warm_modules=len(report["modules"]) if "modules" in report else None,
        warm_missing=tuple(
            f"{name} ({reason})" for name, reason in report.get("missing", {}).items()
        ),
        warm_forked=answer.get("forked") if answer else None,
        warm_cold_starts=len(cold),
        warm_cold_reason=str(cold[-1].get("reason", "")) if cold else "",
        warm_kept=_cached_models(answer or {}) if settings.get("keep", True) else (),
    )


def _cached_models(answer: dict[str, Any]) -> tuple[KeptInfo, ...]:
    """Return the models on the disk, then the tokenizers in the server's memory."""
    models = (
        KeptInfo(
            model=kept_model.model,
            dtype=kept_model.dtype,
            num_bytes=kept_model.num_bytes,
            used_s=kept_model.used_s,
        )
        for kept_model in KeptModels(cache()).all()
    )
    tokenizers = (
        KeptInfo(model=model, dtype="tokenizer", num_bytes=num_bytes, used_s=used_s)
        for model, num_bytes, used_s in reversed(answer.get("tokenizers", []))
    )
    return (*models, *tokenizers)


def _why_not(folder: WarmFolder) -> str:
    state = folder.read_state()
    if state is None:
        # The keeper writes it within its first second; a launcher restarts a missing keeper.
        return "starting" if folder.command.exists() else "cold: no fork server"
    if state.get("state") == "failed":
        return f"cold: the fork server cannot start: {state.get('reason')}"
    if not is_alive(state.get("keeper_pid")):
        return "cold: the fork server is gone; the next process of a job starts it again"
    if state.get("state") == "starting":
        died = _last_death(folder)
        return f"starting (the last one: {died})" if died else "starting"
    return f"cold: the fork server has not answered for {_ANSWER_S} s"


def _last_death(folder: WarmFolder) -> str:
    """Return why the previous server ended; empty for the first one."""
    ends = [event for event in folder.read_events() if event.get("event") in ("died", "replaced")]
    return str(ends[-1].get("reason", "")) if ends else ""


# --- Compilation in the background ---


def announcement(warm: dict[str, Any]) -> str:
    """Return what `up` prints when the head will compile; empty when it will not.

    `warm` are the `warm` settings of the cluster template.
    """
    if not warm.get("enabled") or not will_compile():
        return ""
    return (
        "DeepSpeed's CPU operations are compiled in the background"
        f" ({USUAL_TIME}); a ZeRO run that starts earlier waits for them"
    )


def compilation_state(*, now_s: float | None = None) -> str:
    """Return a sentence while operations are compiled on this machine; empty otherwise."""
    since_s = compiling_since_s()
    if since_s is None:
        return ""
    passed_s = max(0.0, (time.time() if now_s is None else now_s) - since_s)
    return f"DeepSpeed's CPU operations are being compiled for {passed_s:.0f} s ({USUAL_TIME})"


# --- The actions on a local cluster, and what they would stop ---


_RUNS = "runs with their journals, checkpoints and outputs"
_NOT_NOW = {
    ClusterAction.SUSPEND: {
        ClusterState.STOPPED: "It is already stopped",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.RESUME: {
        ClusterState.READY: "It is running",
        ClusterState.STARTING: "It is starting",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.SCALE: {
        ClusterState.STARTING: "It is still starting",
        ClusterState.STOPPING: "It is being stopped",
        ClusterState.STOPPED: "It is stopped: resume it first",
        ClusterState.DEAD: "It is dead: resume it first",
    },
}
_SUMMARIES = {
    ClusterAction.SUSPEND: "Stops the processes of cluster {name}; `resume` starts it again.",
    ClusterAction.RESUME: "Starts cluster {name} again as it was defined.",
    ClusterAction.SCALE: (
        "Restarts cluster {name} with the new numbers: a local cluster is one head, whose size"
        " cannot change while it runs"
        "."
    ),
    ClusterAction.DELETE: "Stops cluster {name} and deletes its definition and its logs.",
}


def possible_actions(record: HeadRecord, state: ClusterState) -> dict[ClusterAction, str]:
    """Return each action with the reason why it is not possible now, or an empty text."""
    if record.is_elsewhere:
        refusals = {action: _elsewhere(record) for action in ClusterAction}
        return refusals | {ClusterAction.RESUME: ""}
    return {action: _NOT_NOW.get(action, {}).get(state, "") for action in ClusterAction}


def preview_of(
    info: ClusterInfo,
    action: ClusterAction,
    *,
    jobs: Sequence[Mapping[str, Any]] | None,
    num_processes: int,
) -> ActionPreview:
    """Return the preview. `jobs` are Ray's; None if it did not answer."""
    stops = [] if action is ClusterAction.RESUME else _stopped(info, jobs, num_processes)
    return ActionPreview(
        cluster=info.name,
        action=action,
        summary=_SUMMARIES[action].format(name=info.name),
        stops=tuple(stops),
        keeps=(_RUNS,) if action is ClusterAction.DELETE else (_RUNS, "its definition"),
        needs_confirmation=action is ClusterAction.DELETE or _loses_work(info, jobs, stops),
    )


def _loses_work(
    info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None, stops: Sequence[str]
) -> bool:
    if not stops:
        return False
    return jobs is None or info.state is ClusterState.STARTING or any(map(is_active, jobs))


def _stopped(
    info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None, num_processes: int
) -> list[str]:
    lives = info.state in (ClusterState.READY, ClusterState.STARTING)
    lines = _running(info, jobs) if lives else []
    if lives and info.num_nodes:
        lines.append(f"{info.num_nodes} node{'' if info.num_nodes == 1 else 's'}")
    if num_processes:
        lines.append(f"{num_processes} process{'' if num_processes == 1 else 'es'}")
    return lines


def _running(info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None) -> list[str]:
    if jobs is not None:
        return [described_job(job) for job in jobs if is_active(job)]
    if info.state is ClusterState.STARTING:
        return ["its start, which is in progress"]
    detail = f" ({info.message})" if info.message else ""
    return [f"whatever runs on it: Ray did not report its jobs{detail}"]


def _elsewhere(record: HeadRecord) -> str:
    return f"It was started on host {record.host}: run the command there"
