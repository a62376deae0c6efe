"""Routes of logs: windows by byte offset, searches, the whole file as a download."""

from __future__ import annotations

from dataclasses import asdict

from tornado.iostream import StreamClosedError

from llmops_kernel.api.run_handle import Run
from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.runs.work import run_named
from llmops_kernel.server.wire.runs import LogInfo, LogMatch, LogMatches, LogWindow
from llmops_kernel.store.log_text import MAX_WINDOW_BYTES, WINDOW_BYTES, LogText

CHUNK_BYTES = 1 << 20
MAX_MATCHES = 500
TEXT = "text/plain; charset=utf-8"


class LogRequest(LLMOpsHandler):
    """Finds the log that a request is about."""

    def _run_named(self, run_id: str) -> Run:
        return run_named(self.manager.backend, run_id)

    async def log_of(self, run_id: str) -> LogText:
        number = self.query_int("attempt", 0)
        return await self.ask(lambda: self._run_named(run_id).log(number or None))


class LogHandler(LogRequest):
    @protected
    async def get(self, run_id: str) -> None:
        """Reply with lines; `offset`: from that line on; `before`: up to it; neither: the end."""
        log = await self.log_of(run_id)
        limit = self.query_int("limit", WINDOW_BYTES)
        offset, before = self.query_int("offset", -1), self.query_int("before", -1)
        if not 0 < limit <= MAX_WINDOW_BYTES:
            raise RequestError(f"limit must be 1 to {MAX_WINDOW_BYTES}", status=422)
        if offset >= 0:
            window = await self.run(log.window, offset, limit)
        elif before >= 0:
            window = await self.run(log.before, before, limit)
        else:
            window = await self.run(log.end, limit)
        self.reply(LogWindow(**asdict(window)))


class LogInfoHandler(LogRequest):
    @protected
    async def get(self, run_id: str) -> None:
        attempts = await self.run(lambda: self._run_named(run_id).attempts)
        number = self.query_int("attempt", 0) or (attempts[-1].number if attempts else 1)
        size = await self.run(lambda log: log.size, await self.log_of(run_id))
        numbers = [attempt.number for attempt in attempts]
        self.reply(LogInfo(attempt=number, attempts=numbers, size=size))


class LogSearchHandler(LogRequest):
    @protected
    async def get(self, run_id: str) -> None:
        log = await self.log_of(run_id)
        limit = self.query_int("limit", 1)
        if not 0 < limit <= MAX_MATCHES:
            raise RequestError(f"limit must be 1 to {MAX_MATCHES}", status=422)
        result = await self.run(
            log.search,
            self.query("text"),
            regex=self.query("regex", "0") == "1",
            ignore_case=self.query("ignore_case", "0") == "1",
            start=self.query_int("start", 0),
            backwards=self.query("backwards", "0") == "1",
            limit=limit,
        )
        matches = [LogMatch(offset=begin, end=end, text=text) for begin, end, text in result.hits]
        self.reply(LogMatches(matches=matches, next=result.next))


class LogDownloadHandler(LogRequest):
    @protected
    async def get(self, run_id: str) -> None:
        """Send the whole log in pieces, up to its current end."""
        log = await self.log_of(run_id)
        num_left, offset = await self.run(lambda: log.size), 0
        name = await self.run(lambda: self._run_named(run_id).id)
        self.set_header("Content-Type", TEXT)  # Goes out with the first piece.
        self.set_header("Content-Disposition", f'attachment; filename="{name}.log"')
        self.set_header("X-Content-Type-Options", "nosniff")
        while num_left > 0 and (
            chunk := await self.run(log.piece, offset, min(CHUNK_BYTES, num_left))
        ):
            self.write(chunk)
            offset, num_left = offset + len(chunk), num_left - len(chunk)
            try:
                await self.flush()
            except StreamClosedError:
                return  # The reader went.
        self.finish(set_content_type=TEXT)


ROUTES = [
    (r"runs/([^/]+)/log", LogHandler),
    (r"runs/([^/]+)/log/info", LogInfoHandler),
    (r"runs/([^/]+)/log/search", LogSearchHandler),
    (r"runs/([^/]+)/log/download", LogDownloadHandler),
]
