"""How a local head's fork server is: warm, starting, off, or cold and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmops_kernel.providers.kept_info import KeptInfo
from llmops_kernel.providers.local.launch import warm_folder
from llmops_kernel.providers.local.record import HeadRecord
from llmops_kernel.store.kept.models import KeptModels
from llmops_kernel.store.paths import cache
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.keeper import ask
from llmops_kernel.warm.launcher import is_alive

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
        warm_missing=tuple(f"{name} ({why})" for name, why in report.get("missing", {}).items()),
        warm_forked=answer.get("forked") if answer else None,
        warm_cold_starts=len(cold),
        warm_cold_reason=str(cold[-1].get("reason", "")) if cold else "",
        warm_kept=_kept(answer or {}) if settings.get("keep", True) else (),
    )


def _kept(answer: dict[str, Any]) -> tuple[KeptInfo, ...]:
    """Return the models on the disk, then the tokenizers in the server's memory."""
    models = (
        KeptInfo(model=one.model, dtype=one.dtype, num_bytes=one.num_bytes, used_s=one.used_s)
        for one in KeptModels(cache()).all()
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
