"""Routes that show the data of a training config as the model will see it."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.server.base import LLMOpsHandler, protected
from llmops_kernel.server.config_routes import InspectionHandler
from llmops_kernel.server.wire.configs import (
    ConfigData,
    ConfigTarget,
    DataBin,
    DataBody,
    DataFact,
    DataRow,
    DataRowBody,
    DataToken,
)
from llmops_kernel.services import data_preview as service
from llmops_kernel.views.preview_facts import facts
from llmops_kernel.views.preview_text import lines, row_head, shown_report, visible

_MOST_TOKENS = 8000


class _PreviewHandler(InspectionHandler):
    """Looks at data in a process of its own, with a limit of time."""

    async def job(self, body: ConfigTarget) -> service.PreviewJob:
        kind, folder = self.kind(body), await self.run(self.folder, body)
        name = body.path or kind.new_file
        workspace = folder or Path(self.manager.root_dir)
        return await self.run(service.job_of_text, body.text, kind.name, name, workspace)


class DataHandler(_PreviewHandler):
    @protected
    async def post(self) -> None:
        body = self.body(DataBody)
        job = await self.job(body)
        job = job.model_copy(update={"max_rows": body.rows, "side": body.side})
        preview = await self.inspect(body, lambda stop: service.preview(job, stop=stop))
        self.reply(_data(preview))


class DataRowHandler(_PreviewHandler):
    @protected
    async def post(self) -> None:
        body = self.body(DataRowBody)
        job = await self.job(body)
        job = job.model_copy(update={"side": body.side})
        preview = await self.inspect(
            body,
            lambda stop: service.preview_row(job, body.row, max_tokens=_MOST_TOKENS, stop=stop),
        )
        self.reply(_row(preview))


def _data(preview: service.DataPreview) -> ConfigData:
    report = shown_report(preview)
    return ConfigData(
        side=preview.side,
        has_eval=preview.eval is not None,
        facts=[DataFact(label=f.label, text=f.text, level=f.level) for f in facts(preview)],
        lengths=f"{report.num_rows:,} rows of {report.source}",
        bins=[
            DataBin(
                label=line.label,
                rows=None if line.bin is None else line.bin.rows,
                is_beyond=line.is_beyond,
            )
            for line in lines(report.lengths, preview.max_length)
        ],
        rows=[_row(row) for row in preview.rows],
        took_s=preview.took_s,
    )


def _row(row: service.ShownRow) -> DataRow:
    return DataRow(
        number=row.number,
        head=row_head(row),
        hidden=row.num_hidden,
        tokens=[
            DataToken(
                text=visible(piece.text), ids=piece.ids, kind=piece.kind, special=piece.special
            )
            for piece in row.pieces
        ],
    )


ROUTES: list[tuple[str, type[LLMOpsHandler]]] = [
    (r"configs/data", DataHandler),
    (r"configs/data/row", DataRowHandler),
]
