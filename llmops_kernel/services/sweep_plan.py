"""What a sweep is: its trials, all checked before the first one starts, and its file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from llmops_kernel.config.problems import Problem, config_error, did_you_mean, unique
from llmops_kernel.config.reading.document import dump, read_text
from llmops_kernel.errors import (
    ConfigError,
    RunNotFoundError,
    StoreError,
)
from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.kinds.reading import ConfigLike, file_kind, kind_of, program_of
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.scores import better_of
from llmops_kernel.services import submission
from llmops_kernel.services.batch import fitting
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.search_space import Changes, Search
from llmops_kernel.services.submission import Submission
from llmops_kernel.store.files import private_folder, store_errors, write_new
from llmops_kernel.store.record import new_run_id
from llmops_kernel.store.store import RunStore

_SHOWN_TRIALS = 3
Better = Literal["lower", "higher"]


class SweepSpec(BaseModel):
    """What a sweep is; never changes after it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    created_s: float
    cluster: str
    kind: str
    config: str
    """Text of the config, as it was at the start."""
    config_name: str
    """What errors call it."""
    config_path: str | None = None
    workspace: str
    over: tuple[str, ...]
    """Fields with values, as they were given."""
    trials: tuple[Changes, ...]
    """Empty where Optuna proposes them."""
    optuna: int | None = None
    """So many trials that Optuna proposes."""
    seed: int = 0
    metric: str
    better: Better
    about_metric: str
    """Why it is this metric."""
    parallel: int


def plan_sweep(
    cluster: Cluster,
    config: ConfigLike,
    search: Search,
    *,
    workspace: Path | str | None = None,
    metric: str | None = None,
    better: Better | None = None,
    parallel: int | None = None,
) -> SweepSpec:
    """Check every trial and write down the sweep; nothing is submitted.

    Raises ConfigError with the mistakes of all trials at once.
    """
    spec = _unchecked(cluster, config, search, workspace)
    requests = _checked(spec, search.trials())
    kind = kind_named(spec.kind)
    name, way, about = _metric(kind, requests[0].config, metric, better)
    spec = spec.model_copy(
        update={
            "id": new_run_id(f"{requests[0].config.name}-sweep"),
            "metric": name,
            "better": way,
            "about_metric": about,
            "parallel": parallel or fitting(cluster, [each.config for each in requests]),
        }
    )
    _save(cluster.backend.store, spec)
    return spec


def _unchecked(
    cluster: Cluster, config: ConfigLike, search: Search, workspace: Path | str | None
) -> SweepSpec:
    kind, path = kind_of(config), Path(config) if isinstance(config, str | Path) else None
    if path is not None and program_of(path, kind) is not None:
        raise config_error(
            [Problem(path=str(path), message="is a program, and a sweep changes a config")],
            remedy="write a config of it: llmops init train.script.yaml",
        )
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    return SweepSpec(
        id="",
        created_s=time.time(),
        cluster=cluster.name,
        kind=kind.name,
        config=_text_of(config, kind),
        config_name=str(path) if path else f"config{file_kind(kind).globs[0].lstrip('*')}",
        config_path=submission.shown_path(path, root),
        workspace=str(root.resolve()),
        over=search.words,
        trials=() if search.optuna else tuple(search.trials()),
        optuna=search.optuna,
        seed=search.seed,
        metric="",
        better="lower",
        about_metric="",
        parallel=1,
    )


def _text_of(config: ConfigLike, kind: RunKind) -> str:
    if isinstance(config, str | Path):
        file = file_kind(kind)
        return read_text(Path(config).expanduser(), remedy=file.remedy, siblings=file.globs[0])
    return dump(config.model_dump(mode="json") if isinstance(config, BaseModel) else dict(config))


def _checked(spec: SweepSpec, trials: Sequence[Changes]) -> list[Submission]:
    """Return the submission of each trial. Raises ConfigError with all mistakes of all of them."""
    problems: dict[str, tuple[Problem, list[int]]] = {}
    requests, remedy = [], ""
    for number, changes in enumerate(trials, start=1):
        try:
            request = request_of(spec, changes)
            wrong: Sequence[Problem] = request.problems(Path(spec.workspace))
            requests.append(request)
        except ConfigError as error:
            wrong, remedy = (
                error.problems or [Problem(path="", message=error.message)],
                error.remedy,
            )
        for problem in wrong:
            problems.setdefault(str(problem), (problem, []))[1].append(number)
    if problems:
        shown = [_of_trials(each, numbers, len(trials)) for each, numbers in problems.values()]
        raise config_error(list(unique(shown)), remedy=remedy)
    if spec.optuna is None:
        _refuse_equal(requests)
    return requests


def _of_trials(problem: Problem, numbers: list[int], count: int) -> Problem:
    if len(numbers) == count:
        return problem
    named = ", ".join(map(str, numbers[:_SHOWN_TRIALS]))
    more = f" and {len(numbers) - _SHOWN_TRIALS} more" if len(numbers) > _SHOWN_TRIALS else ""
    of = f"trial{'' if len(numbers) == 1 else 's'} {named}{more}"
    return replace(problem, message=f"{problem.message} ({of} of {count})")


def _refuse_equal(requests: Sequence[Submission]) -> None:
    seen: dict[str, int] = {}
    problems = []
    for number, request in enumerate(requests, start=1):
        values = request.config.model_dump_json()
        if values in seen:
            message = f"trials {seen[values]} and {number} are the same configuration"
            shown = ", ".join(f"{key}={text}" for key, text in request.overrides.items())
            problems.append(
                Problem(path="", message=f"{message}: {shown}", suggestion="leave one of them out")
            )
        seen.setdefault(values, number)
    if problems:
        raise config_error(problems)


def request_of(spec: SweepSpec, changes: Changes) -> Submission:
    request = submission.from_text(
        spec.config,
        name=spec.config_name,
        workspace=Path(spec.workspace),
        config_path=spec.config_path,
        overrides=[f"{key}={text}" for key, text in changes.items()],
    )
    return replace(request, group=spec.id[:60], sweep=spec.id, checks=False)


def _metric(
    kind: RunKind, config: Any, metric: str | None, better: Better | None
) -> tuple[str, Better, str]:
    """Return the metric, which way is better, and why it is this one."""
    about = "as --metric says"
    if metric is None:
        if kind.name != "train":
            raise ConfigError(
                f"A sweep of {kind.name} runs needs the name of the figure to compare.",
                remedy="name it with --metric, such as --metric exact_match",
            )
        has_rows = bool(config.data.eval)
        metric = "eval_loss" if has_rows else "loss"
        about = "loss on the held-out rows" if has_rows else "training loss: no data.eval is set"
    figure = next((each for each in kind.figures if each.key == metric), None)
    way = better or (figure.better if figure else better_of(metric))
    if way is None:
        raise ConfigError(
            f"Nothing says whether a lower or a higher {metric} is better.",
            remedy="say it with --lower or --higher",
        )
    return metric, way, about


# --- The file of a sweep ---


def sweeps_folder(store: RunStore) -> Path:
    return store.root / "sweeps"


def _save(store: RunStore, spec: SweepSpec) -> None:
    path = sweeps_folder(store) / f"{spec.id}.json"
    with store_errors("write", path):
        private_folder(path.parent)
        write_new(path, spec.model_dump_json(indent=2).encode())


def sweep_ids(store: RunStore) -> list[str]:
    """Return the ids of all sweeps, newest first."""
    paths = list(sweeps_folder(store).glob("*.json"))
    return [path.stem for path in sorted(paths, key=lambda p: p.stat().st_mtime, reverse=True)]


def load_sweep(store: RunStore, ref: str = "last") -> SweepSpec:
    """Return a sweep by its id, a unique beginning of it, or `last`.

    Raises RunNotFoundError with similar ids, StoreError for a file that cannot be read.
    """
    ids = sweep_ids(store)
    matches = ids[:1] if ref == "last" else [each for each in ids if each.startswith(ref)]
    matches = [ref] if ref in ids else matches
    if len(matches) != 1:
        hint = did_you_mean(ref, ids) or (f"use one of: {', '.join(ids[:5])}" if ids else "")
        reason = f"it begins {len(matches)} ids" if matches else f"there are {len(ids)} sweeps"
        raise RunNotFoundError(
            f"Sweep {ref!r} not found: {reason}.",
            remedy=hint or "start one: llmops sweep CONFIG --over FIELD=VALUE,VALUE",
        )
    path = sweeps_folder(store) / f"{matches[0]}.json"
    try:
        with store_errors("read", path):
            return SweepSpec.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreError(
            f"Sweep {path} cannot be read: {error.errors()[0]['msg']}",
            remedy="it is broken or of another version: start the sweep anew",
        ) from None
