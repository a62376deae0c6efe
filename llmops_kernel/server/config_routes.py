"""Routes that help to write configs: check, complete, hover, forms, templates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from llmops_kernel.config import assist
from llmops_kernel.config.assist.diagnose import Examined
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.reading.templates import FOLDER
from llmops_kernel.kinds.reading import file_kind_named, file_kind_of, file_kinds
from llmops_kernel.kinds.registry import is_registered
from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.wire.configs import (
    CheckBody,
    ConfigCheck,
    ConfigCompletion,
    ConfigDiagnostic,
    ConfigHover,
    ConfigKind,
    ConfigTarget,
    ConfigText,
    CursorBody,
    RenderBody,
)
from llmops_kernel.services.check import CloseCheck, check_closely
from llmops_kernel.services.data_process import Stop


class ConfigHandler(LLMOpsHandler):
    """Finds the kind and the folder of what a request is about."""

    def kind(self, body: ConfigTarget) -> Kind:
        if body.kind is not None:
            return file_kind_named(body.kind)
        file_kind = file_kind_of(body.path) if body.path is not None else None
        if file_kind is None:
            globs = ", ".join(glob for kind in file_kinds().values() for glob in kind.globs[:1])
            raise RequestError(
                f"{body.path or 'This text'} is not a known config file",
                remedy=f"name its kind, or name the file as one of {globs}, or below {FOLDER}/",
                status=422,
            )
        return file_kind

    def folder(self, body: ConfigTarget) -> Path | None:
        """Return the folder that the config's relative paths start from."""
        if body.path is None:
            return None
        return self.os_path(body.path, must_exist=False).parent


# --- Work with data for a request ---
# A few processes at once, none for an answer that nobody awaits.


TIMEOUT_S = 60.0
_AT_ONCE: Final = 2
"""Processes with a tokenizer, of all users of this server. Other requests wait."""
_GATE = "llmops_data_gate"
_NEWEST = "llmops_data_newest"
T = TypeVar("T")
Key = tuple[str, str]


class InspectionHandler(ConfigHandler):
    """Gives work a `Stop` that is set when the client goes away or asks anew about the config."""

    _stop: Stop | None = None
    _stopped: asyncio.Event | None = None

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._end()

    async def inspect(self, body: ConfigTarget, work: Callable[[Stop], T]) -> T:
        """Do work in its turn. Raises StoppedError, and RequestError if its turn never came."""
        self._stop, self._stopped = Stop(), asyncio.Event()
        newest: dict[Key, InspectionHandler] = self.settings.setdefault(_NEWEST, {})
        key = self._key(body)
        if key is not None:
            if key in newest:
                newest[key]._end()
            newest[key] = self
        try:
            return await self._in_turn(work)
        finally:
            if key is not None and newest.get(key) is self:
                del newest[key]

    async def _in_turn(self, work: Callable[[Stop], T]) -> T:
        gate: asyncio.Semaphore = self.settings.setdefault(_GATE, asyncio.Semaphore(_AT_ONCE))
        assert self._stop is not None
        assert self._stopped is not None
        turn = asyncio.ensure_future(gate.acquire())
        end = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({turn, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if self._stopped.is_set():
            if not turn.cancel():
                gate.release()
            raise RequestError("A newer request replaced this one", status=409)
        try:
            return await self.ask(work, self._stop)
        finally:
            gate.release()

    def _end(self) -> None:
        if self._stop is not None and self._stopped is not None:
            self._stopped.set()
            # It may wait for the process to end.
            asyncio.get_running_loop().run_in_executor(self.manager.own_threads, self._stop.set)

    def _key(self, body: ConfigTarget) -> Key | None:
        """Return which question about which config this is; None for a text without a file."""
        return None if body.path is None else (body.path, type(self).__name__)


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
