"""Rows for tests, without a store."""

from __future__ import annotations

from typing import Any

from llmops_kernel.store.journal.summary import FigureValue, RunSummary
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.views.run_query.row import Row, config_values, row_of


def figure(key: str, value: float | None, **more: Any) -> FigureValue:
    text = "–" if value is None else f"{value:g}"
    known = {"label": key.replace("_", " "), "unit": "loss", "better": "lower", "listed": True}
    return FigureValue(key=key, value=value, text=text, **{**known, **more})


def run(
    run_id: str,
    *,
    config: dict[str, Any] | None = None,
    figures: dict[str, float | None] | None = None,
    notes: RunNotes | None = None,
    more: dict[str, Any] | None = None,
    **summary: Any,
) -> Row:
    known = {"name": run_id.split("-")[0], "cluster": "local", "created_s": 0.0}
    known |= {"state": "SUCCEEDED", "attempt": 1}
    made = RunSummary(
        run_id=run_id,
        figures=tuple(figure(key, value) for key, value in (figures or {}).items()),
        **{**known, **summary},
    )
    return row_of(made, notes or RunNotes(), config=config_values(config or {}), facts=more or {})


def sweep(**values: list[Any]) -> list[Row]:
    """One run a combination of the values, `__` for the dot of a path."""
    combos: list[dict[str, Any]] = [{}]
    for path, choices in values.items():
        combos = [{**combo, path: choice} for combo in combos for choice in choices]
    return [run(f"menu-{n}", config=_nested(combo)) for n, combo in enumerate(combos)]


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {"seed": 42}
    for path, value in flat.items():
        *sections, name = path.split("__")
        inner = config
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return config
