"""Finds the model that a training run has made: its base model and what was trained."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.config.models.objectives import ObjectiveConfig, recorded
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, RunStateError
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.store.outputs import check_reported
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

MODEL_OUTPUTS = ("adapter", "model", "merged_model")
"""Outputs that are a model, in the order of preference."""
_LAST = "last"


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The model of a run."""

    run_id: str
    base: str
    """Catalogue name, folder or hub id of the base model; empty if it is not known."""
    revision: str | None
    adapter: str
    """Folder or URL of the adapter; empty for a full fine-tune."""
    model: str
    """Folder or URL of the trained weights; empty for an adapter."""


def run_with_model(ref: str, store: RunStore) -> str:
    """Return the id of a run; `last` is the newest one that has written a model, if one has.

    Raises RunNotFoundError.
    """
    try:
        return _run_id(ref, store)
    except RunStateError:
        return store.resolve(ref)


def trained_model(
    ref: str, store: RunStore, *, output_of: Collection[str] = ("text",)
) -> TrainedModel:
    """Return the model of a run; `last` is the newest run that has written one.

    `output_of`: what the model may return, see `ObjectiveConfig.output`. Raises RunNotFoundError,
    and RunStateError for a run without such an output, or with one at a URL that only its journal
    names.
    """
    run_id = _run_id(ref, store)
    record, output = store.record(run_id), _output(store, run_id)
    _check_objective(record, output_of)
    if output is None:
        raise RunStateError(
            f"Run {run_id} has written no model.",
            remedy="name a training run that has finished, as `llmops runs` lists them",
        )
    base, revision = (output.base, output.base_revision) if output.base else _base(record)
    check_reported(output.path, record, store.attempts(run_id))
    is_adapter = output.what == "adapter"
    return TrainedModel(
        run_id=run_id,
        base=base or (_base_of_adapter(output.path) if is_adapter else ""),
        revision=revision,
        adapter=output.path if is_adapter else "",
        model="" if is_adapter else output.path,
    )


def with_model(config: ScoreConfig, store: RunStore) -> ScoreConfig:
    """Return the config with the model of `model.run` filled in.

    Raises RunNotFoundError, RunStateError, also where the task asks for something else than the
    run's objective has taught.
    """
    if not config.model.run:
        return config
    run_id = _newest(store) if config.model.run == _LAST else store.resolve(config.model.run)
    _check_task(config, recorded(store.record(run_id).config), run_id)
    trained = trained_model(run_id, store, output_of=("text", "labels", "reward", "embedding"))
    if trained.adapter and not trained.base:
        raise RunStateError(
            f"The base model of run {trained.run_id} is not known.",
            remedy=f"name it in model.id, and the adapter in model.adapter: {trained.adapter}",
        )
    model = config.model.model_copy(
        update={
            "run": trained.run_id,
            "id": trained.base if trained.adapter else trained.model,
            "adapter": trained.adapter,
            "revision": trained.revision if trained.adapter else None,
        }
    )
    return config.model_copy(update={"model": model})


def with_start(config: TrainingConfig, store: RunStore) -> TrainingConfig:
    """Return the config with the folder of `model.run`, or of its checkpoint, as `model.id`.

    So for the run that `objective.reference` names. Raises RunNotFoundError, RunStateError,
    ConfigError.
    """
    model, reference = config.model, getattr(config.objective, "reference", None)
    if model.run is not None:
        own = config.objective.output
        begun = _begun(store, "model", model.run, model.id, output_of=own, step=model.step)
        started = model.model_copy(update={**begun, "revision": None})
        config = config.model_copy(update={"model": started})
    if reference is not None and reference.run is not None:
        begun = _begun(store, "objective.reference", reference.run, reference.id)
        compared = {"reference": reference.model_copy(update=begun)}
        objective = config.objective.model_copy(update=compared)
        config = config.model_copy(update={"objective": objective})
    return config


def _begun(
    store: RunStore,
    path: str,
    run: str,
    given: str,
    *,
    output_of: str = "text",
    step: int | None = None,
) -> dict[str, str]:
    """Return the whole id of a run, and the folder of its result or checkpoint."""
    run_id = _run_id(run, store)
    # A model that writes text may begin one of another objective, but not the other way round.
    is_same = recorded(store.record(run_id).config).output == output_of
    output_of = output_of if is_same else "text"
    if step is None:
        trained = trained_model(run_id, store, output_of=(output_of,))
        folder, base = trained.adapter or trained.model, trained.base
    else:
        _check_objective(store.record(run_id), (output_of,))
        folder, base = _checkpoint(store, run_id, step), _base(store.record(run_id))[0]
    if "://" in folder:
        raise RunStateError(
            f"The result of run {run_id} is at {folder}, and a training begins with a folder.",
            remedy=f"copy it to a folder that the workers see, and name that in {path}.id",
        )
    if given not in ("", folder, base):  # A file may name the base of the run that goes on.
        raise ConfigError(
            f"{path}.id is {given}, and {path}.run begins with {folder}.",
            remedy=f'remove one of the two; {path}.id="" leaves the run',
        )
    return {"id": folder, "run": run_id}


def _check_task(config: ScoreConfig, objective: ObjectiveConfig, run_id: str) -> None:
    """Raise RunStateError where the model of an objective cannot do the config's task."""
    task = config.task
    writes_text = objective.output == "text"
    can = {"embed": "embed", "classify": "classify"}.get(objective.type, "value")
    if writes_text:
        is_possible = task.type != "value" and (task.type != "classify" or bool(task.choices))
    else:
        is_possible = task.type == can and not task.choices
    if is_possible:
        return
    own = "generate, classify with task.choices, json, logprob or embed"
    raise RunStateError(
        f"The model of run {run_id} cannot do the task {task.type}"
        + (f" with{'' if task.choices else 'out'} choices" if task.type == "classify" else "")
        + f": its objective is {objective.type}, which {objective.summary}.",
        remedy=f"set task.type to {own if writes_text else can}"
        + (" without task.choices" if task.choices and not writes_text else ""),
    )


def _check_objective(record: RunRecord, output_of: Collection[str]) -> None:
    """Raise RunStateError for a run whose model returns something else than `output_of`."""
    objective = recorded(record.config)
    if objective.output in output_of:
        return
    what = "writes no text" if "text" in output_of else "is not one to begin with here"
    raise RunStateError(
        f"The model of run {record.run_id} {what}: its objective is {objective.type}, which"
        f" {objective.summary}.",
        remedy="score a table with it (`llmops score`), or name a run of another objective",
    )


def _checkpoint(store: RunStore, run_id: str, step: int) -> str:
    """Return the folder of a run's checkpoint that has a model. Raises RunStateError."""
    folders = {
        event.step: event.path
        for event in view_of(store, run_id).checkpoints
        if any(Path(event.path).glob("*.safetensors"))
    }
    if step not in folders:
        steps = ", ".join(map(str, folders)) or "none"
        raise RunStateError(
            f"Run {run_id} has no checkpoint with a model at step {step}.",
            remedy=f"its checkpoints: {steps}; checkpoint.keep decides how many stay",
        )
    return folders[step]


def _run_id(ref: str, store: RunStore) -> str:
    return _newest(store) if ref == _LAST else store.resolve(ref)


def _newest(store: RunStore) -> str:
    newest = next((run_id for run_id in store.run_ids() if _output(store, run_id)), None)
    if newest is None:
        raise RunStateError(
            "No run has written a model yet.",
            remedy="train one first: `llmops submit lora.train.yaml`; or name a model in model.id",
        )
    return newest


def _output(store: RunStore, run_id: str) -> OutputEvent | None:
    # On the cluster's nodes: where its copy in the run folder is, no worker can read it.
    events = [event for event in view_of(store, run_id).outputs if not event.copied_from]
    outputs = {event.what: event for event in events}
    return next((outputs[kind] for kind in MODEL_OUTPUTS if kind in outputs), None)


def _base(record: RunRecord) -> tuple[str, str | None]:
    model = record.config.get("model")
    if isinstance(model, str):
        return model, None
    if isinstance(model, dict):
        return str(model.get("id") or ""), model.get("revision")
    return "", None


def _base_of_adapter(path: str) -> str:
    """Return the base model as PEFT has written it; empty where the file cannot be read."""
    try:
        data = json.loads((Path(path) / "adapter_config.json").read_text())
    except (OSError, ValueError):
        return ""
    return str(data.get("base_model_name_or_path") or "")
