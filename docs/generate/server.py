"""Pages of what programs read: REST routes, live messages, events of the journal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from docs.generate.markdown import table
from docs.generate.routes import ABOUT
from llmops_kernel.config.models.section import about, set_descriptions
from llmops_kernel.metrics.events import PHASES, AnyEvent, Event
from llmops_kernel.server.app import PREFIX, all_routes
from llmops_kernel.server.base import NotFoundHandler
from llmops_kernel.server.wire import live
from llmops_kernel.server.wire_ts import typescript

_LIVE = (
    "One websocket a browser tab, `/llmops/live`. A page sends `LiveRequest` to subscribe to a topic:"
    " `clusters`, `operations`, `runs`, `run/<id>`, `chat/<id>`. Each message that it gets is"
    " `LiveHeader`, whose `kind` names the data in `LivePayloads`; rows of steps follow the JSON as"
    " 32-bit floats."
)
_METHODS = ("get", "post", "put", "patch", "delete")


def pages() -> dict[str, str]:
    """Return the pages of routes, live messages and events."""
    return {
        "reference/rest.md": _rest(),
        "reference/live.md": _live(),
        "reference/journal.md": _journal(),
    }


def routes() -> Iterator[tuple[str, str, Any]]:
    """Yield method, path such as `runs/{}/log` and handler class of each registered route."""
    for pattern, handler in all_routes():
        if handler is not NotFoundHandler:
            path = re.sub(r"\([^)]*\)", "{}", pattern.removeprefix(PREFIX))
            for method in _METHODS:
                if getattr(handler, method).__module__.startswith("llmops_kernel."):
                    yield method.upper(), path, handler


def _rest() -> str:
    rows, interfaces = [], _interfaces()
    for method, path, handler in routes():
        code = inspect.getsource(getattr(handler, method.lower()))
        bodies = re.findall(r"self\.body\((\w+)\)", code)
        names = re.findall(r"self\.query(?:_int)?\(\s*\"(\w+)\"", code)
        asks = [f"[`{body}`](#{body.lower()})" for body in bodies if body in interfaces]
        asks += [f"`?{name}=`" for name in names]
        rows.append((f"`{method} {_shown(path)}`", ", ".join(asks), ABOUT[f"{method} {path}"]))
    live_names = {model.__name__ for model in live.WIRE_MODELS}
    blocks = [block for name, block in interfaces.items() if name not in live_names]
    return (
        "\n\n".join(
            (
                "# REST routes",
                "The Jupyter server extension answers below `/llmops/`, with Jupyter's login and XSRF"
                " check: the token of the server in the header `Authorization: token ...`. An error has"
                " a status of 400 or above and the body `Trouble`: message and remedy. A change that"
                " takes time is answered with 202 and an operation, which `GET operations/{id}` shows"
                " until it ends. Answers are of this release; `GET handshake` says the protocol's"
                " number.",
                '```bash\ncurl -H "Authorization: token $JUPYTER_TOKEN"'
                " http://localhost:8888/llmops/runs\n```",
                table(("route", "body and query", "what it does"), rows),
                "## Bodies and answers",
                "As TypeScript; a field with `?` may be left out.",
                *blocks,
            )
        )
        + "\n"
    )


def _shown(path: str) -> str:
    first = path.partition("/")[0].rstrip("s") or "id"
    names = iter((first, "path"))
    return "/llmops/" + re.sub(r"\{\}", lambda _: "{" + next(names) + "}", path)


def _interfaces() -> dict[str, str]:
    """Return name -> heading and TypeScript of each model of the wire."""
    begin = r"\n(?=(?:/\*\*(?:(?!\*/).)*\*/\n)?export interface )"
    parts = re.split(begin, typescript(), flags=re.DOTALL)
    named = {}
    for part in parts[1:]:
        name = re.search(r"export interface (\w+)", part)
        if name is not None:
            named[name[1]] = f"### {name[1]}\n\n```ts\n{part.strip()}\n```"
    return named


def _live() -> str:
    interfaces = _interfaces()
    names = [model.__name__ for model in live.WIRE_MODELS]
    inner = [model.__name__ for model in vars(live).values() if _is_payload(model)]
    shown = dict.fromkeys([*names, *inner])
    blocks = [interfaces[name] for name in shown if name in interfaces]
    return "\n\n".join(("# Live messages", _LIVE, "## Messages", *blocks)) + "\n"


def _is_payload(model: Any) -> bool:
    return (
        inspect.isclass(model)
        and issubclass(model, BaseModel)
        and model.__module__ == live.__name__
        and model not in live.WIRE_MODELS
    )


def _journal() -> str:
    union = get_args(AnyEvent)[0]
    parts = [
        "# Events of the journal",
        "A run's journal is `journal/<stream>.jsonl` in its folder: one JSON object a line. It is"
        " append-only, and every screen is drawn from it. " + _module_text(),
        "`run.events()` in Python, `llmops query` in SQL and the files themselves have the same"
        " events.",
        "## Fields of every event",
        _fields(Event, Event.model_fields),
        "## Start-up phases",
        ", ".join(f"`{phase}`" for phase in PHASES) + ". A run may have further ones, such as"
        " `evaluate`, `generate` and `save`.",
    ]
    for event in get_args(union):
        own = {name: f for name, f in event.model_fields.items() if name not in Event.model_fields}
        kind = own.pop("kind").default
        parts += [
            f"## `{kind}`",
            (inspect.getdoc(event) or "") if event.__doc__ else "",
            _fields(event, own),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _module_text() -> str:
    module = inspect.getmodule(Event)
    return (inspect.getdoc(module) or "").partition("\n\n")[2]


def _fields(model: type[BaseModel], fields: Any) -> str:
    set_descriptions(model)
    rows = []
    for name, field in fields.items():
        kind = re.sub(r"\b(?:llmops_kernel|typing)[\w.]*\.", "", _annotation(field.annotation))
        rows.append((f"`{name}`", f"`{kind}`", about(field)))
    return table(("field", "type", "meaning"), rows) if rows else ""


def _annotation(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)
