"""The demo's workspace: a config, its hooks and its data, in a clone and in the wheel."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from llmops_kernel import score_env
from llmops_kernel.errors import ConfigError, StoreError
from llmops_kernel.kinds.reading import load
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.clusters import Cluster, find, read_template, up
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.submission import from_config, submit
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.paths import home
from llmops_kernel.store.record import RunRecord

TIME_S = 400.0
"""Seconds of the demo. `make demo` subtracts its installation's: both end within 7 minutes."""
LEAST_STEPS = 80
"""Optimizer steps that are made on any machine. Field accuracy was 59 % after 80 (of 64 held-out
rows), 61 % after 114 and 76 % after 226 (of 32), from 13 %; each with a learning rate that falls to
its end."""
SCORED_ROWS, ENOUGH_ROWS, LEAST_ROWS = 96, 64, 32
"""Held-out rows that each model answers when both are scored: at most, without fewer steps for it,
and at least."""
BATCH_ROWS = 32
"""Rows that are answered at once, by both configs; so many take hardly longer than EVAL_ROWS."""
EVAL_ROWS = 16
"""Held-out rows that the training run itself answers, before its first step and after the last."""
_MEASURED_STEPS = 8
"""After so many steps the speed is known; the first one is slower than the others. Of four, two
measurements of one machine were 1.0 and 1.3 s a step, and its later steps took 1.1."""
_SAVE_S, _SUBMIT_S, _STOP_S = 3.0, 3.0, 4.0
_SLOWER = 1.08
"""How much longer later steps may take than the first ones: they have the machine to themselves."""
_WARM_START = 0.4
"""Share of the first start's time that a second start takes: its processes are forked, and its
model is in the cache."""
PACKAGE = Path(__file__).parents[1]
CLUSTER = "local"
CONFIG = "lora.train.yaml"
SCORE_CONFIG = "menu.score.yaml"
FILES = (CONFIG, SCORE_CONFIG, "menu_hooks.py", "data/menu-train.jsonl", "data/menu-eval.jsonl")
"""Files that the wheel has in `llmops_kernel/demo_workspace`; see pyproject.toml."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of a machine in seconds, as the first steps of a run have shown it."""

    start_s: float
    """From submission to the first step, without the evaluation before it."""
    step_s: float
    batch_s: float
    """To write the answers to a batch of held-out rows."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Amount of training that fits into the demo's time, and how long it is expected to take."""

    max_steps: int
    again: bool
    """Whether the run is submitted again: with fewer steps its learning rate falls sooner."""
    rows: int
    seconds: float
    """Expected time from now on, with the scoring of that many rows."""


def speed_of(view: TrainingView) -> Speed | None:
    """Return what a run has shown of its machine; None before that many steps."""
    steps = [step.step_time_s for step in view.steps if step.step_time_s]
    first_s = view.submit_to_first_step_s
    if len(steps) < _MEASURED_STEPS or first_s is None or not view.evals:
        return None
    before = view.evals[0]
    if before.step or not before.duration_s or not before.num_rows:
        return None
    return Speed(
        start_s=max(0.0, first_s - before.duration_s - steps[0]),
        step_s=median(steps[1:]),
        batch_s=before.duration_s,
    )


def size_for(speed: Speed, *, left_s: float, steps: int, steps_done: int) -> Size:
    """Return what fits into the seconds that are left: all, else fewer rows, else fewer steps too.

    `steps` is the number of steps of the run, `steps_done` of those that it has made. The least is
    done on any machine, however long it takes.
    """
    finish_s = (steps - steps_done) * speed.step_s + speed.batch_s + _SAVE_S
    if rows_for(speed, left_s=left_s - finish_s) < ENOUGH_ROWS:
        restart_s = _STOP_S + _WARM_START * speed.start_s + _SAVE_S
        for_steps_s = left_s - restart_s - _scoring_s(speed, rows=LEAST_ROWS)
        fewer = max(LEAST_STEPS, int(for_steps_s / speed.step_s / _SLOWER))
        again_s = restart_s + fewer * speed.step_s
        if fewer < steps - steps_done and again_s < finish_s:
            rows = rows_for(speed, left_s=left_s - again_s)
            seconds = again_s + _scoring_s(speed, rows=rows)
            return Size(max_steps=fewer, again=True, rows=rows, seconds=seconds)
    rows = rows_for(speed, left_s=left_s - finish_s)
    seconds = finish_s + _scoring_s(speed, rows=rows)
    return Size(max_steps=steps, again=False, rows=rows, seconds=seconds)


def rows_for(speed: Speed, *, left_s: float) -> int:
    """Return how many rows both models can be scored with in that time; the least in any."""
    for rows in range(SCORED_ROWS, LEAST_ROWS, -BATCH_ROWS):
        if _scoring_s(speed, rows=rows) <= left_s:
            return rows
    return LEAST_ROWS


def _scoring_s(speed: Speed, *, rows: int) -> float:
    """Return the time of two scorings: the engine's first load is like the start of a training."""
    return speed.start_s + 2 * (_SUBMIT_S + rows / BATCH_ROWS * speed.batch_s)


def demo_config(workspace: Path | None = None, *, package: Path = PACKAGE) -> Path:
    """Return the config to train: of `workspace`, of a clone, or of a copy in the home folder.

    Raises ConfigError without one.
    """
    if workspace is not None:
        return _existing(workspace / CONFIG)
    clone = package.parent / "notebooks"
    if (clone / CONFIG).is_file():
        return clone / CONFIG
    _existing(package / "demo_workspace" / CONFIG)
    return _copied(package / "demo_workspace", home() / "demo")


def menu_data(*, package: Path = PACKAGE) -> Path:
    """Return the folder of the shipped menu data. Raises ConfigError where it is missing."""
    clone = package.parent / "notebooks" / "data"
    folder = clone if clone.is_dir() else package / "demo_workspace" / "data"
    _existing(folder / "menu-train.jsonl")
    return folder


def submit_demo(
    config: Path,
    *,
    cluster: Cluster,
    max_steps: int | None = None,
    changes: Sequence[str] = (),
) -> RunRecord:
    """Submit the demo's training; `max_steps` None is the config's number of steps.

    `changes`: further ones, such as `evaluation.at_start=false`.
    """
    overrides = [*changes, *([] if max_steps is None else [f"training.max_steps={max_steps}"])]
    submission = from_config(config, overrides=overrides, workspace=config.parent)
    return submit(cluster, submission)


def score_config(config: Path) -> Path | None:
    """Return the score config beside the training config; None where a workspace has none."""
    path = config.parent / SCORE_CONFIG
    return path if path.is_file() else None


def submit_scoring(
    config: Path, *, cluster: Cluster, model: str, rows: int = SCORED_ROWS
) -> RunRecord:
    """Submit a scoring of the first held-out rows; `model` is a change such as `model.run=ID`.

    vLLM answers where its environment is made already: to make it would take longer than the demo.
    """
    engine = "vllm" if score_env.ready() else "transformers"
    overrides = [model, f"engine.type={engine}", f"input.limit={rows}", "evaluation.samples=2"]
    submission = from_config(config, overrides=overrides, workspace=config.parent)
    return submit(cluster, submission)


def start_demo(
    workspace: Path | None = None,
    *,
    max_steps: int | None = None,
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> RunRecord:
    """Start the demo's cluster, prepare its model and submit its training.

    Each part is skipped if it is done already.
    """
    backend = backend or current()
    config = demo_config(workspace)
    template, path = read_template(CLUSTER)
    up(template, path=path, progress=progress, backend=backend)
    prepare_model(model_of(config), progress=progress)
    cluster = find(CLUSTER, backend=backend)
    return submit_demo(config, cluster=cluster, max_steps=max_steps)


def model_of(config: Path) -> str:
    """Return the id of the model that a training config names. Raises ConfigError."""
    return str(load(config, ()).model.id)


def _existing(config: Path) -> Path:
    if not config.is_file():
        raise ConfigError(
            f"{config} does not exist.",
            remedy="name a folder that has it with --workspace, or reinstall llmops-kernel",
        )
    return config


def _copied(source: Path, target: Path) -> Path:
    """Copy what is missing: files that the user has changed stay."""
    try:
        for name in FILES:
            if not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, target / name)
    except OSError as error:
        raise StoreError(
            f"The demo cannot be copied to {target}: {error.strerror}",
            remedy="set LLMOPS_HOME to a folder that you can write to",
        ) from error
    return target / CONFIG
