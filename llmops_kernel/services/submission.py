"""Turns a config and changes to it into a run that Ray has accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.load import (
    load_training_config,
    training_config_from_dict,
    training_config_from_record,
    training_config_from_text,
)
from llmops_kernel.config.reading.overrides import Overrides
from llmops_kernel.jobs.submit import submit_run
from llmops_kernel.kinds import script_config as scripts
from llmops_kernel.kinds.request import RunRequest, request_of
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.clusters import ClusterAccess
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.warm.plan import REFUSE_ENV_VAR

Config = TrainingConfig | ScriptConfig
TrainingLike = TrainingConfig | Mapping[str, Any] | str | Path
ConfigLike = TrainingLike | ScriptConfig


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is submitted: checked, with the folder that is uploaded."""

    request: RunRequest
    workspace: Path
    """Folder of code and data; relative paths of the config start here."""
    config_path: str | None = None
    """Where the config came from; stored in the run record."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Changes, as they were written, for the record."""
    parent: str | None = None
    """Id of the run that is submitted again."""
    hidden: bool = False
    """Whether lists leave the run out unless asked for."""
    env_vars: Mapping[str, str] | None = None
    """Environment variables of this one attempt."""


def from_config(
    config: ConfigLike,
    *,
    workspace: Path | str | None = None,
    overrides: Overrides = (),
    settings: Mapping[str, Any] | None = None,
) -> Submission:
    """Read a file, a dict or a config. Raises ConfigError with all mistakes at once.

    `workspace` defaults to the folder of the file, else the current folder.
    """
    path = Path(config) if isinstance(config, str | Path) else None
    changes = combined(overrides, settings or {})
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    return Submission(
        request=_request(load_any(config, changes, workspace=root)),
        workspace=root,
        config_path=_shown_path(path, root),
        overrides=as_mapping(changes),
    )


def from_text(
    text: str, *, name: str, workspace: Path, config_path: str | None, overrides: Overrides = ()
) -> Submission:
    """Read a config that is not saved yet; `name` is what error messages call it."""
    config: Config = (
        scripts.script_from_text(text, overrides, name=name)
        if scripts.is_script(name)
        else training_config_from_text(text, overrides, name=name, workspace=workspace)
    )
    return Submission(
        request=_request(config),
        workspace=workspace,
        config_path=config_path,
        overrides=as_mapping(overrides),
    )


def from_run(
    record: RunRecord,
    *,
    text: str | None = None,
    workspace: Path | str | None = None,
    overrides: Overrides = (),
    settings: Mapping[str, Any] | None = None,
) -> Submission:
    """Return a new submission of a run's config with changes, or of the edited `text` of it."""
    changes = combined(overrides, settings or {})
    return Submission(
        request=_request(_again(record, text, changes)),
        workspace=Path(workspace or record.workspace_root),
        config_path=record.config_path,
        overrides=as_mapping(changes),
        parent=record.run_id,
    )


def submit(
    cluster: ClusterAccess,
    submission: Submission,
    *,
    store: RunStore,
    progress: Progress | None = None,
) -> RunRecord:
    """Submit to a cluster and return as soon as Ray has accepted the job."""
    info = cluster.ready_info(progress=progress)
    with cluster.client() as client:
        record, _ = submit_run(
            store=store,
            cluster=info,
            client=client,
            request=submission.request,
            workspace=submission.workspace,
            config_path=submission.config_path,
            overrides=submission.overrides,
            parent=submission.parent,
            hidden=submission.hidden,
            env_vars=submission.env_vars,
        )
    return record


def cold_start(reason: str) -> dict[str, str]:
    """Return environment variables of an attempt whose processes must start cold."""
    return {REFUSE_ENV_VAR: reason}


def _again(record: RunRecord, text: str | None, changes: Overrides) -> Config:
    name = "the edited config"
    if record.kind == "script":
        if text is None:
            return scripts.script_from_dict(record.config, changes)
        return scripts.script_from_text(text, changes, name=name)
    if text is None:
        return training_config_from_record(record.config, changes)
    return training_config_from_text(text, changes, name=name)


def _request(config: Config) -> RunRequest:
    kind = "script" if isinstance(config, ScriptConfig) else "train"
    return request_of(config, name=config.name, kind=kind)


def load_any(config: ConfigLike, changes: Overrides, *, workspace: Path | None = None) -> Config:
    """Return the resolved config of a training run or of a script. Raises ConfigError."""
    if isinstance(config, ScriptConfig):
        return scripts.script_from_dict(config.model_dump(mode="json"), changes)
    if isinstance(config, str | Path) and scripts.is_script(config):
        return scripts.load_script(Path(config), changes, workspace=workspace)
    return load(config, changes, workspace=workspace)


def load(
    config: TrainingLike, changes: Overrides, *, workspace: Path | None = None
) -> TrainingConfig:
    """Return the resolved config. Raises ConfigError with all mistakes at once.

    With a `workspace` those of the files that a wrong config names are among them.
    """
    if isinstance(config, str | Path):
        return load_training_config(config, changes, workspace=workspace)
    data = config.model_dump(mode="json") if isinstance(config, TrainingConfig) else config
    return training_config_from_dict(data, changes, workspace=workspace)


def combined(overrides: Overrides, settings: Mapping[str, Any]) -> Overrides:
    """Merge overrides and keywords; a keyword wins over an override of the same field."""
    if not settings:
        return overrides
    if not overrides:
        return settings
    if isinstance(overrides, Mapping):
        return {**overrides, **settings}
    # An override's value is read as YAML, and JSON is YAML.
    return [*overrides, *(f"{key}={json.dumps(value)}" for key, value in settings.items())]


def as_mapping(overrides: Overrides) -> dict[str, Any]:
    """Return the changes as they were written, by field."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    parts = (text.partition("=") for text in overrides)
    return {key.strip(): value.strip() for key, _, value in parts}


def _shown_path(path: Path | None, root: Path) -> str | None:
    if path is None:
        return None
    resolved, root = path.resolve(), root.resolve()
    return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(resolved)
