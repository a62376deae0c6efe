"""A kind of run that only tests have: it indexes documents and makes no training steps."""

from __future__ import annotations

from llmops_kernel.kinds.generic import START_PHASES, START_WORDS
from llmops_kernel.kinds.kind import Column, Figure, RunKind
from llmops_kernel.metrics.events import ProgressEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record.record import RunRecord


class IndexView(RunView):
    """What the kind adds to the view of any run."""

    @property
    def documents_per_second(self) -> float | None:
        reported = self._of(ProgressEvent)
        return reported[-1].values.get("documents_per_second") if reported else None


def _value(name: str):
    return lambda event: event.values.get(name)


def describe(record: RunRecord) -> str:
    return f"index of {record.config['folder']}"


TOY = RunKind(
    name="index",
    title="Index of documents",
    config_suffix=".index.yaml",
    entrypoint="python -m tests.kinds.index_driver",
    view=IndexView,
    figures=(
        Figure(
            key="documents_per_second",
            label="documents/s",
            unit="per_second",
            better="higher",
            hint="all actors together",
            value=lambda view: view.documents_per_second,
            listed=True,
        ),
    ),
    columns=(
        Column(name="done", label="document", unit="count", value=lambda event: event.done),
        Column(
            name="documents_per_second",
            label="documents/s",
            unit="per_second",
            value=_value("documents_per_second"),
        ),
        Column(name="misses", label="misses", unit="number", value=_value("misses")),
    ),
    curve="misses",
    phases=(*START_PHASES, "open_index"),
    words={**START_WORDS, "open_index": "Opening the index"},
    actions=frozenset({"stop", "compare", "delete"}),
    describe=describe,
)
