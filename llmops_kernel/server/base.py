"""The base of all handlers: authorization, request bodies, replies and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from pydantic import BaseModel, TypeAdapter, ValidationError
from tornado.web import HTTPError, authenticated

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.server.manager import MANAGER_KEY, Manager
from llmops_kernel.server.wire.common import Trouble, trouble

AUTH_RESOURCE: Final = "llmops"
MAX_BODY_BYTES = 1024 * 1024

B = TypeVar("B", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class RequestError(LLMOpsError):
    """The request is invalid."""

    def __init__(self, message: str, *, remedy: str = "", status: int = 400) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


def protected(method: Method) -> Method:
    """Require a user whom Jupyter's authorizer allows."""
    return cast("Method", authenticated(authorized(method)))


class LLMOpsHandler(APIHandler):
    """JSON in, JSON out; XSRF is checked by Jupyter's base class."""

    auth_resource = AUTH_RESOURCE

    @property
    def manager(self) -> Manager:
        manager: Manager = self.settings[MANAGER_KEY]
        return manager

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work that waits only for this machine's disk, off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.manager.own_threads, partial(work, *args, **kwargs))

    async def ask(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work that waits for a cluster, a bucket or a credential plug-in.

        In threads of their own: all of them may wait while `run` still answers at once.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.manager.executor, partial(work, *args, **kwargs))

    def body(self, model: type[B]) -> B:
        """Return the request's JSON. Raises RequestError with every mistake at once."""
        data = self.request.body
        if len(data) > MAX_BODY_BYTES:
            raise RequestError(
                f"The request has {len(data):,} bytes; at most {MAX_BODY_BYTES:,} are accepted",
                remedy="send less, or submit a file by its path",
                status=413,
            )
        try:
            return model.model_validate_json(data or b"{}")
        except ValidationError as error:
            raise _bad_body(error) from None

    def reply(self, answer: Any, *, status: int = 200) -> None:
        """Reply with `answer`: a wire model, a list of them, or plain JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(_encoded(answer))

    def query(self, name: str, default: str | None = None) -> str:
        """Return a query parameter; one without a default is required."""
        value = self.get_query_argument(name, default)
        if value is None:
            raise RequestError(f"The query parameter {name!r} is missing")
        return str(value)

    def query_int(self, name: str, default: int | None = None) -> int:
        text = self.query(name, None if default is None else str(default))
        try:
            return int(text)
        except ValueError:
            raise RequestError(f"{name}={text!r} is not a whole number") from None

    def os_path(self, path: str, *, must_exist: bool = True) -> Path:
        """Return the file of a path in Jupyter's file browser; never one outside its root."""
        return below(self.manager.root_dir, path, must_exist=must_exist)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Reply with our errors and their remedies; of other errors only the status."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(self._trouble(status_code, error).model_dump_json())

    def _trouble(self, status_code: int, error: BaseException | None) -> Trouble:
        if isinstance(error, LLMOpsError):
            self.set_status(error.status)
            return trouble(error)
        if isinstance(error, HTTPError):
            return Trouble(message=error.log_message or error.reason or self._reason)
        remedy = "see the log of the Jupyter server" if status_code >= 500 else ""
        return Trouble(message=f"{status_code}: {self._reason}", remedy=remedy)

    def log_exception(self, *exc_info: Any) -> None:
        """Log tracebacks, but not of errors with a remedy: the user has seen those."""
        if not isinstance(exc_info[1], LLMOpsError):
            super().log_exception(*exc_info)


class NotFoundHandler(LLMOpsHandler):
    """Answers all other paths below ours with 404 as JSON."""

    @protected
    def get(self) -> None:
        self._miss()

    # Its own: Jupyter's `authorized` keeps the action of the first request that comes.
    @protected
    def post(self) -> None:
        self._miss()

    put = patch = delete = post

    def _miss(self) -> NoReturn:
        raise RequestError(f"There is no resource at {_short(self.request.path)}", status=404)


def below(root: Path, path: str, *, must_exist: bool = True) -> Path:
    """Return `path` below `root`, links followed. Raises RequestError for a path outside of it."""
    parts = PurePosixPath(path.strip("/")).parts
    if "\0" in path or ".." in parts or "\\" in path:
        raise RequestError(f"{path!r} is not a path below the Jupyter root folder", status=403)
    try:
        path_below = root.joinpath(*parts).resolve()
        is_there = path_below.exists()
    except (OSError, RuntimeError):
        # Names that are too long, links that lead to themselves, folders that are locked.
        raise RequestError(f"{_short(path)!r} cannot be read", status=404) from None
    if not path_below.is_relative_to(root):
        raise RequestError(
            f"{path!r} is outside the Jupyter root folder {root}",
            remedy="copy it below that folder, or start JupyterLab above it",
            status=403,
        )
    if must_exist and not is_there:
        raise RequestError(f"There is no {path!r} below {root}", status=404)
    return path_below


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _bad_body(error: ValidationError) -> RequestError:
    wrong = [
        f"{'.'.join(map(str, item['loc'])) or 'the body'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]
    is_json = all(item["type"] != "json_invalid" for item in error.errors())
    return RequestError("; ".join(wrong), status=422 if is_json else 400)


def _encoded(answer: Any) -> bytes | str:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    if isinstance(answer, list | tuple) and answer and isinstance(answer[0], BaseModel):
        return TypeAdapter(list[Any]).dump_json(list(answer))
    return json.dumps(answer, allow_nan=False)
