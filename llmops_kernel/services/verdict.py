"""What bounds a run, with a change that its config allows and that the planner says will fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmops_kernel.config.less_memory import changed, micro_batch_sizes
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.hardware.accelerators import find
from llmops_kernel.kinds.reading import from_record
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import StartEvent
from llmops_kernel.planner.speed import update_seconds
from llmops_kernel.planner.verdict import Facts, Verdict, needs_memory, overrides_of, verdict
from llmops_kernel.services.plan import Planning
from llmops_kernel.services.plan_inputs import Guess
from llmops_kernel.store.diff import differences
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.waterfall import waterfall_of


def verdict_of(record: RunRecord, view: RunView) -> Verdict | None:
    """Return what bounds a training and the setting to change; None where nothing was measured.

    Of a run that has run out of memory the change has the settings that it went on with, too, and
    of one that has looked for its micro batch that size.
    """
    losses = waterfall_of(view)
    start = view.start if isinstance(view, TrainingView) else None
    if losses is None or start is None:
        return None
    adapted = _adapted(view)
    ran_out = bool(adapted)
    try:
        config = from_record(kind_named(record.kind), record.config)
        if not isinstance(config, TrainingConfig):
            return None
        if config.training.micro_batch_size == "auto" and (size := start.micro_batch_size):
            adapted = {"training.micro_batch_size": size, **adapted}
            ran_out = ran_out or size < micro_batch_sizes(config)[-1]  # The next one was tried.
        in_force = changed(config, adapted)
    except (LLMOpsError, ValueError):  # A record of another release.
        return None
    record = record.model_copy(update={"config": in_force.model_dump(mode="json")})
    facts = Facts(
        config=record.config,
        num_params=start.num_params,
        num_trainable=start.num_trainable,
        is_streamed=_is_streamed(record.config, start),
        update_s=_update_s(record.config, start),
    )
    answer = verdict(losses, facts, _Fitting(record, start, ran_out=ran_out).fits)
    return replace(answer, change={**adapted, **answer.change}) if answer.change else answer


def prediction_of(
    answer: Verdict | None, first: tuple[RunRecord, RunView], second: tuple[RunRecord, RunView]
) -> str:
    """Return the gain that the first run's verdict has predicted, beside that of the second.

    Empty where the second is not the first with just the change that the verdict proposes.
    """
    (record, view), (other, newer) = first, second
    if answer is None or not answer.change or answer.gain is None:
        return ""
    try:
        config = from_record(kind_named(record.kind), record.config, answer.change)
    except LLMOpsError:  # As one that an adapted run went on with, and that no config may have.
        return ""
    if differences(config.model_dump(mode="json"), other.config):
        return ""
    speeds = [_speed(view), _speed(newer)]
    words = f"{', '.join(overrides_of(answer.change))}: {answer.gain:+.0%} tokens/s predicted"
    if speeds[0] is None or speeds[1] is None:
        return f"{words}, not measured yet."
    return f"{words}, {speeds[1] / speeds[0] - 1:+.0%} measured."


def _speed(view: RunView) -> float | None:
    losses = waterfall_of(view)
    return None if losses is None else losses.measured.overall_tokens_per_second


def _adapted(view: RunView) -> dict[str, Any]:
    """Return the settings that the newest attempt has in place of the config's."""
    changes: dict[str, Any] = {}
    for restart in view.restarts:
        if restart.attempt == view.attempt:
            changes.update(restart.changes)
    return changes


class VerdictOfPanel:
    """The verdict of a live run, asked for at each change of its panel.

    Made anew once there are half as many steps more, and at the end: a plan takes 10 to 40 ms.
    """

    def __init__(self) -> None:
        self._steps, self._is_last = 0, False
        self._verdict: Verdict | None = None

    def __call__(self, record: RunRecord, view: RunView) -> Verdict | None:
        steps = len(view.rows)
        if steps >= 1.5 * self._steps or (view.is_terminal and not self._is_last):
            self._verdict = verdict_of(record, view)
            self._steps, self._is_last = steps, view.is_terminal
        return self._verdict


def _is_streamed(config: Mapping[str, Any], start: StartEvent) -> bool:
    streaming = (config.get("data") or {}).get("streaming")
    return streaming is True or (streaming == "auto" and not start.num_tokens)


def _update_s(config: Mapping[str, Any], start: StartEvent) -> float | None:
    """Return an estimate of the seconds in which a device updates one worker's share."""
    strategy = (config.get("parallelism") or {}).get("strategy")
    weights = start.num_trainable / (1 if strategy == "ddp" else start.num_workers)
    accelerator = find(start.device)
    return update_seconds(
        weights, None if accelerator is None else accelerator.bandwidth_bytes_per_second
    )


class _Fitting:
    """Plans the run with changes, on devices of its own kind."""

    def __init__(self, record: RunRecord, start: StartEvent, *, ran_out: bool) -> None:
        """`ran_out`: its memory was not enough for settings that need more than those of now."""
        self._record, self._ran_out = record, ran_out
        accelerator = find(start.device)
        device = "cpu" if accelerator is None else accelerator.name
        self._planning = Planning(
            record.cluster, Guess(device=device), workspace=record.workspace_root
        )

    def fits(self, change: Mapping[str, Any]) -> bool | None:
        """Return whether a change fits; False if the config refuses it, None if nothing says."""
        if self._ran_out and needs_memory(change):
            return False
        try:
            config = from_record(kind_named(self._record.kind), self._record.config, change)
        except LLMOpsError:
            return False
        try:
            return self._planning.plan(config).plan.fits
        except LLMOpsError:
            return None  # A family that the planner does not know, or a model that is elsewhere.
