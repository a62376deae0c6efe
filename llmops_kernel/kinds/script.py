"""The kind `script`: a training script of the user's that reports through `llmops_kernel.track`."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.problems import Problem, closest
from llmops_kernel.kinds.generic import START_PHASES, START_WORDS
from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.kinds.train import COLUMNS, FIGURES, metric_figures
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record.record import RunRecord

_SHOWN_ARGS = 60


def describe(record: RunRecord) -> str:
    """`train.py --lr 1e-4 · 2 workers`."""
    config = record.config
    args = " ".join(str(arg) for arg in config.get("args") or ())
    shown = args if len(args) <= _SHOWN_ARGS else args[: _SHOWN_ARGS - 1] + "…"
    line = f"{config.get('script', '')} {shown}".strip()
    workers = config.get("num_workers")
    return f"{line} · {workers} worker{'' if workers == 1 else 's'}" if workers else line


def check_files(config: ScriptConfig, workspace: Path) -> list[Problem]:
    """Return what is wrong with the script: missing, no Python file, or outside the workspace."""
    path = workspace / config.script
    if path.suffix != ".py":
        message, suggestion = "a script is a Python file", "name a file that ends in .py"
    elif not path.resolve().is_relative_to(workspace.resolve()):
        message = f"not below the workspace {workspace}, which is what travels to the cluster"
        suggestion = "choose the workspace with --workspace, or workspace= in Python"
    elif not path.is_file():
        message = f"no such file below {workspace}"
        names = [str(one.relative_to(workspace)) for one in sorted(workspace.glob("*.py"))]
        suggestion = closest(config.script, names) or ""
        suggestion = f"did you mean {suggestion}?" if suggestion else ""
    else:
        return []
    return [Problem(path="script", message=message, value=config.script, suggestion=suggestion)]


SCRIPT = RunKind(
    name="script",
    title="Script run",
    config_suffix=".script.yaml",
    entrypoint="python -m llmops_kernel.train.script.entrypoint",
    config="llmops_kernel.config.models.script:ScriptConfig",
    check_files="llmops_kernel.kinds.script:check_files",
    view=TrainingView,
    figures=FIGURES,
    more_figures=metric_figures,
    columns=COLUMNS,
    curve="loss",
    phases=(*START_PHASES, "workers", "first_step"),
    words={
        **START_WORDS,
        "workers": "Starting the workers",
        "first_step": "Running the script; no step is reported yet",
    },
    describe=describe,
)
