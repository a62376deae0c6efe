"""Routes that show what a training config means: its data as the model sees it, and its plan."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.server.base import LLMOpsHandler, protected
from llmops_kernel.server.cluster_routes import template_file
from llmops_kernel.server.config_routes import InspectionHandler
from llmops_kernel.server.wire.configs import (
    ConfigData,
    ConfigPlan,
    ConfigTarget,
    DataBin,
    DataBody,
    DataFact,
    DataRow,
    DataRowBody,
    DataToken,
    PlanBody,
    PlanPart,
)
from llmops_kernel.services import data_preview as service
from llmops_kernel.services.plan import plan_text
from llmops_kernel.views import plan as plan_views
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


class PlanHandler(InspectionHandler):
    """Plans a config: milliseconds, but for a built-in model that is converted first."""

    @protected
    async def post(self) -> None:
        body = self.body(PlanBody)
        kind, folder = self.kind(body), await self.run(self.folder, body)
        name = body.path or kind.new_file
        root = Path(self.manager.root_dir)
        cluster = await self.run(template_file, body.cluster, root) or body.cluster
        planned = await self.inspect(
            body,
            lambda _: plan_text(
                body.text, kind.name, name=name, cluster=cluster, workspace=folder or root
            ),
        )
        values = planned.to_dict()
        warned = {"memory"} if values["fits"] is False else set()
        self.reply(
            ConfigPlan(
                device=f"{values['num_workers']} x {values['device'] or 'unknown device'}",
                fits=values["fits"],
                facts=[
                    DataFact(
                        label=label, text=text, level="warning" if label in warned else "plain"
                    )
                    for label, text in plan_views.facts(values).items()
                    if label
                ],
                parts=[
                    PlanPart(label=label, size=size, share=share)
                    for label, size, share in plan_views.parts(values)
                ],
            )
        )


ROUTES: list[tuple[str, type[LLMOpsHandler]]] = [
    (r"configs/data", DataHandler),
    (r"configs/data/row", DataRowHandler),
    (r"configs/plan", PlanHandler),
]
