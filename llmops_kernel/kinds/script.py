"""The kind `script`: a training script of the user's that reports through `llmops_kernel.track`."""

from __future__ import annotations

from llmops_kernel.kinds.kind import ALL_ACTIONS, START_PHASES, START_WORDS, Program, RunKind
from llmops_kernel.kinds.train import COLUMNS, FIGURES, logged_columns, more_figures
from llmops_kernel.store.journal.training_view import ScriptView
from llmops_kernel.store.record import RunRecord

_SHOWN_ARGS = 60


def describe(record: RunRecord) -> str:
    """`train.py --lr 1e-4 · 2 workers`."""
    config = record.config
    args = " ".join(str(arg) for arg in config.get("args") or ())
    shown = args if len(args) <= _SHOWN_ARGS else args[: _SHOWN_ARGS - 1] + "…"
    line = f"{config.get('script', '')} {shown}".strip()
    workers = config.get("num_workers")
    return f"{line} · {workers} worker{'' if workers == 1 else 's'}" if workers else line


PYTHON = Program(config="llmops_kernel.kinds.script_config:values_of", arguments="args")
SCRIPT = RunKind(
    name="script",
    title="Script run",
    is_profiled=True,
    entrypoint="exec python -m llmops_kernel.train.script.entrypoint",
    config_file="llmops_kernel.kinds.script_config:SCRIPT_FILE",
    programs={".py": PYTHON},
    view=ScriptView,
    figures=FIGURES,
    more_figures=more_figures,
    columns=COLUMNS,
    more_columns=logged_columns,
    curve="loss",
    phases=(*START_PHASES, "workers", "first_step"),
    words={
        **START_WORDS,
        "workers": "Starting the workers",
        "first_step": "Running the script; no step is reported yet",
    },
    actions=ALL_ACTIONS | {"chat"},
    describe=describe,
)
