"""Two or more runs compared: overlaid curves, figures and differences."""

from __future__ import annotations

from collections.abc import Sequence

from llmops_kernel.api.run_handle import Run
from llmops_kernel.services import comparison
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.diff import RunDiff
from llmops_kernel.store.journal.view import RunView


class Comparison:
    """Overlaid curves and, from each run to the next newer one, what differs."""

    def __init__(self, backend: Backend, runs: Sequence[Run]) -> None:
        by_id = {run.id: run for run in runs}
        compared = comparison.compare(backend.store, list(by_id))
        self.runs = tuple(by_id[run_id] for run_id in compared.run_ids)
        self.diffs: tuple[RunDiff, ...] = compared.diffs

    def _named(self) -> list[tuple[str, RunView]]:
        return [(run.id, run.view) for run in self.runs]

    def to_png(self) -> bytes:
        """Loss, speed and start-up phases as a picture."""
        from llmops_kernel.views.compare import render_png

        return render_png(self._named())

    def text(self) -> str:
        """Figures and differences, for terminals."""
        from llmops_kernel.views.compare import table_text

        return "\n\n".join([table_text(self._named()), *(diff.text() for diff in self.diffs)])

    def __repr__(self) -> str:
        return self.text()

    def _ipython_display_(self) -> None:
        from llmops_kernel.views.compare import bundles
        from llmops_kernel.widgets.show import display_bundle

        for bundle in bundles(self._named(), self.diffs):
            display_bundle(bundle)
