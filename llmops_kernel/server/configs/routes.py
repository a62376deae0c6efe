"""Routes that help to write configs: check, complete, hover, forms, templates."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmops_kernel.config import assist
from llmops_kernel.config.assist.diagnose import Examined
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.kinds.reading import file_kind_named, file_kinds
from llmops_kernel.kinds.registry import is_registered
from llmops_kernel.server.base import protected
from llmops_kernel.server.configs.inspection import TIMEOUT_S, InspectionHandler
from llmops_kernel.server.configs.target import ConfigHandler
from llmops_kernel.server.wire.configs import (
    CheckBody,
    ConfigCheck,
    ConfigCompletion,
    ConfigDiagnostic,
    ConfigHover,
    ConfigKind,
    ConfigText,
    CursorBody,
    RenderBody,
)
from llmops_kernel.services.check.closely import CloseCheck, check_closely


class KindsHandler(ConfigHandler):
    @protected
    async def get(self) -> None:
        self.reply([_kind_info(kind) for kind in file_kinds().values()])


class SchemaHandler(ConfigHandler):
    @protected
    async def get(self) -> None:
        kind, provider = file_kind_named(self.query("kind")), self.query("provider", "")
        self.reply(await self.run(assist.form_schema, kind, provider=provider))


class TemplateHandler(ConfigHandler):
    @protected
    async def get(self) -> None:
        text = await self.run(file_kind_named(self.query("kind")).template)
        self.reply(ConfigText(text=text))


class CheckHandler(InspectionHandler):
    @protected
    async def post(self) -> None:
        body = self.body(CheckBody)
        kind, folder = self.kind(body), await self.run(self.folder, body)
        examined = await self.run(_examined, kind, body, folder)
        config, closely = examined.config, CloseCheck()
        if body.closely and config is not None:
            workspace = folder or Path(self.manager.root_dir)
            closely = await self.inspect(
                body,
                lambda stop: check_closely(
                    config, workspace, problems=examined.problems, timeout_s=TIMEOUT_S, stop=stop
                ),
            )
        self.reply(await self.run(_checked, kind, examined, closely))


class CompleteHandler(ConfigHandler):
    @protected
    async def post(self) -> None:
        body = self.body(CursorBody)
        items = await self.run(
            assist.complete,
            self.kind(body),
            body.text,
            line=body.line,
            column=body.column,
            folder=await self.run(self.folder, body),
        )
        self.reply([ConfigCompletion(**asdict(item)) for item in items])


class HoverHandler(ConfigHandler):
    @protected
    async def post(self) -> None:
        body = self.body(CursorBody)
        hover = await self.run(
            assist.hover, self.kind(body), body.text, line=body.line, column=body.column
        )
        self.reply(None if hover is None else ConfigHover(**asdict(hover)))


class RenderHandler(ConfigHandler):
    @protected
    async def post(self) -> None:
        body = self.body(RenderBody)
        text = await self.run(assist.render, file_kind_named(body.kind), body.data)
        self.reply(ConfigText(text=text))


def _kind_info(kind: Kind) -> ConfigKind:
    return ConfigKind(
        name=kind.name,
        title=kind.title,
        globs=list(kind.globs),
        new_file=kind.new_file,
        is_run=is_registered(kind.name),
    )


def _examined(kind: Kind, body: CheckBody, folder: Path | None) -> Examined:
    return assist.examine(
        kind,
        body.text,
        path=body.path,
        folder=folder,
        with_files=body.with_files,
        overrides=body.overrides,
    )


def _checked(kind: Kind, examined: Examined, closely: CloseCheck) -> ConfigCheck:
    diagnostics = assist.located([*examined.problems, *closely.problems], examined.document)
    advice = [*examined.warnings, *closely.warnings]
    warnings = assist.located(advice, examined.document, severity="warning")
    valid = examined.config is not None and not diagnostics
    return ConfigCheck(
        kind=kind.name,
        valid=valid,
        effect=kind.effect(examined.config) if valid else [],
        name=getattr(examined.config, "name", None),
        values=examined.values,
        diagnostics=[ConfigDiagnostic(**asdict(item)) for item in diagnostics],
        warnings=[ConfigDiagnostic(**asdict(item)) for item in warnings],
        checked=closely.notes,
    )


ROUTES: list[tuple[str, Any]] = [
    (r"configs/kinds", KindsHandler),
    (r"configs/schema", SchemaHandler),
    (r"configs/template", TemplateHandler),
    (r"configs/check", CheckHandler),
    (r"configs/complete", CompleteHandler),
    (r"configs/hover", HoverHandler),
    (r"configs/render", RenderHandler),
]
