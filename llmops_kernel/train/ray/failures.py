"""The failures of an attempt: from what the workers stored, and what Ray and Ray Train report."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray.train import WorkerGroupError

from llmops_kernel.config.less_memory import changed, describe_changes
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.compat import is_lost_worker
from llmops_kernel.errors import LLMOpsError, RunError
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.failures import describe, group, is_peer_loss, memory_remedy
from llmops_kernel.train.ray.worker import (
    config_at_start,
    config_changes,
    config_in_force,
    failure_key,
)

# --- Failure events of an attempt ---


def failures(error: BaseException, spec: RunSpec) -> list[FailureEvent]:
    """Return each distinct failure once, the cause first.

    A lost worker breaks the collectives of the others: what those raised is only a symptom.
    """
    if isinstance(error, LLMOpsError):
        return [_own(error)]
    chosen = choose(reported(spec), error, config_in_force(spec))
    changes = config_changes(spec)
    if not changes:
        return chosen
    config, tried = config_at_start(spec), []
    for each in changes:
        tried.append(describe_changes(config, each))
        config = changed(config, each)
    text = f"after running out of memory before, the run had gone on with {'; then '.join(tried)}"
    return [
        failure.model_copy(update={"remedy": "; ".join(filter(None, (failure.remedy, text)))})
        for failure in chosen
    ]


def reported(spec: RunSpec) -> list[FailureEvent]:
    """Return what the workers that run with the newest settings stored of their failures."""
    return [FailureEvent.model_validate(value) for value in kv.values(failure_key(spec))]


def choose(
    events: list[FailureEvent], error: BaseException, config: TrainingConfig
) -> list[FailureEvent]:
    """Return what the workers reported, or the death of a worker where that explains it."""
    if raised := [failure for failure in events if not _is_symptom(failure)]:
        return group(raised)
    if ranks := lost_ranks(error):
        return [lost_worker(error, ranks, config)]
    if events:
        return group(events)
    return [
        _own(
            RunError(
                f"Ray Train ended the run: {cause(error)}.",
                remedy="see `llmops logs` and the Ray Dashboard, then `llmops retry`",
            )
        )
    ]


def _is_symptom(failure: FailureEvent) -> bool:
    return not failure.out_of_memory and is_peer_loss(failure.error + failure.message)


def lost_worker(error: Any, ranks: tuple[int, ...], config: TrainingConfig) -> FailureEvent:
    """Return the failure for workers whose processes are gone; no restart is left."""
    reason, allowed = cause(error), config.training.max_failures
    return FailureEvent(
        error="WorkerDied",
        message=f"{reason[0].upper()}{reason[1:]}. No restart is left"
        f" (training.max_failures={allowed}).",
        remedy=f"`llmops retry` resumes from the last checkpoint with the same config; if memory"
        f" ran"
        f" out, {memory_remedy(config)}; training.max_failures={allowed + 1} allows one more"
        f" restart",
        ranks=ranks,
    )


def _own(error: LLMOpsError) -> FailureEvent:
    """Return a failure of the driver itself, which has no rank."""
    failure = describe(error, rank=0, workspace=Path.cwd())
    return failure.model_copy(update={"ranks": ()})


# --- Ray Train's errors: lost workers and failures of the code ---


def is_code_failure(error: Any) -> bool:
    """Return whether every failed worker raised, and at least one for more than a lost peer."""
    if not isinstance(error, WorkerGroupError) or not error.worker_failures:
        return False
    failures = list(error.worker_failures.values())
    if any(is_lost_worker(failure) for failure in failures):
        return False
    return not all(is_peer_loss(f"{type(failure).__name__} {failure}") for failure in failures)


def out_of_memory(
    error: Any, events: Sequence[FailureEvent], *, is_kernel: Callable[[tuple[int, ...]], bool]
) -> FailureEvent | None:
    """Return the failure if a worker ran out of memory and no other one failed by itself.

    It raised, or was killed by Ray's memory monitor or the kernel; `is_kernel` returns whether the
    kernel killed a process of these ranks' nodes because memory ran out.
    """
    raised = [failure for failure in events if not _is_symptom(failure)]
    if raised:
        first = raised[0].model_copy(
            update={"ranks": tuple(sorted({rank for one in raised for rank in one.ranks}))}
        )
        return first if all(failure.out_of_memory for failure in raised) else None
    ranks = lost_ranks(error)
    reasons = [death_reason(str(error.worker_failures[rank])) for rank in ranks]
    of_memory = [reason for reason in reasons if _OUT_OF_MEMORY in reason]
    is_known = any("by Ray" in reason for reason in of_memory)
    if not of_memory or not (is_known or is_kernel(ranks)):
        return None
    peer = events[0] if events else None
    return FailureEvent(
        error="WorkerDied",
        message=cause(error),
        ranks=ranks,
        out_of_memory=True,
        step=peer.step if peer else None,
        phase=peer.phase if peer else "",
    )


def describe_shortage(failure: FailureEvent) -> str:
    """Return `out of memory at step 7 of worker rank 1`."""
    ranks = ", ".join(map(str, failure.ranks))
    worker = f"worker rank{'s' if len(failure.ranks) > 1 else ''} {ranks}"
    step = f" at step {failure.step:,}" if failure.step else ""
    if failure.phase in ("", "first_step"):
        return f"out of memory{step} of {worker}"
    after = f" after step {failure.step:,}" if failure.step else ""
    return f"out of memory of {worker} in phase {failure.phase}{after}"


def lost_ranks(error: Any) -> tuple[int, ...]:
    """Return the ranks whose processes are gone; empty if all workers raised."""
    failures = getattr(error, "worker_failures", None) or {}
    return tuple(sorted(rank for rank, failure in failures.items() if is_lost_worker(failure)))


def cause(error: Any) -> str:
    """Return one clause: which ranks, and what happened to them."""
    failures = getattr(error, "worker_failures", None)
    if not failures:
        return shortened((str(error).strip().splitlines() or ["no reason was reported"])[-1])
    dead = lost_ranks(error)
    ranks = dead or tuple(sorted(failures))
    first = str(failures[ranks[0]])
    workers = f"worker rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    if dead:
        several = f" are gone; rank {ranks[0]}" if len(ranks) > 1 else ""
        return f"{workers}{several} {death_reason(first)}"
    return f"{workers} lost the connection to the other workers"


# --- Reasons of a worker's death, from Ray's report ---


_OUT_OF_MEMORY = "because its node ran out of memory"
_USAGE = re.compile(r"was ([\d.]+ ?[KMGT]i?B) / ([\d.]+ ?[KMGT]i?B)")
_EXIT_CODE = re.compile(r"exit code:? (-?\d+)")
_SIGNAL = re.compile(r"\b(SIG(?:KILL|TERM|SEGV|ABRT|BUS|INT))\b")
_NODE = re.compile(r"^\s*ip: (\S+)", re.MULTILINE)
_TIMEOUT = re.compile(r"(?:timeout|timed out|hang).*?([\d.]+ ?s(?:econds)?)\b", re.IGNORECASE)
MAX_CHARS = 240


def death_reason(text: str) -> str:
    """Return what happened to the process, as the end of "worker rank 1 ...".

    Ray's own text is a paragraph with a list of possible causes and advice. It does not know the
    signal: a process that was killed only leaves a closed connection behind.
    """
    node = _NODE.search(text)
    location = f" (node {node[1]})" if node else ""
    return f"{_reason(text)}{location}"


def _reason(text: str) -> str:
    lowered = text.lower()
    if "low on memory" in lowered or "memory usage threshold" in lowered:
        usage = _USAGE.search(text)
        used = f": {usage[1]} of {usage[2]} were in use" if usage else ""
        return f"was killed by Ray {_OUT_OF_MEMORY}{used}"
    if "its node has died" in lowered or "node was terminated" in lowered:
        return "was lost with its node"
    if "preempt" in lowered or "drain" in lowered:
        return "was lost with its node, which was preempted"
    if code := _EXIT_CODE.search(text):
        return _exit(int(code[1]))
    if "connection error code" in lowered:
        return f"was killed, probably by signal 9 {_OUT_OF_MEMORY}"
    if "ray.kill" in lowered or "intended" in lowered:
        return "was stopped by Ray"
    if timeout := _TIMEOUT.search(text):
        return f"did not answer a health check within {timeout[1]}"
    if match := _SIGNAL.search(text):
        return _killed(signal.Signals[match[1]])
    return f"died: {shortened(_first_sentence(text))}"


def _exit(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return _killed(signal.Signals(number))
    except ValueError:
        return f"exited with code {code}"


def _killed(by: signal.Signals) -> str:
    why = f", probably {_OUT_OF_MEMORY}" if by is signal.SIGKILL else ""
    return f"was killed by signal {by.value} ({by.name}){why}"


def _first_sentence(text: str) -> str:
    """Return the first line that says something; class names and ids are skipped."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = [line for line in lines if not re.match(r"[\w ]{1,20}: \S+$", line)]
    informative = [
        line for line in useful if re.search(r"exit|died|dead|killed", line, re.IGNORECASE)
    ]
    return (informative or useful or lines or ["no reason was reported"])[-1]


def shortened(text: str, *, most: int = MAX_CHARS) -> str:
    """Return the text, cut behind a sentence or at least a word if it is long."""
    if len(text) <= most:
        return text
    cut = text[:most]
    sentence = cut.rfind(". ")
    return cut[: sentence + 1] if sentence > most // 4 else f"{cut.rsplit(' ', 1)[0]} …"
