"""Run the API server: `python -m tests.k8s.standin.api.server`; process.py starts it for tests."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import ssl
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.k8s.standin.api.control import Control
from tests.k8s.standin.api.controllers import Controllers
from tests.k8s.standin.api.dispatch import Api
from tests.k8s.standin.api.faults import Fault
from tests.k8s.standin.api.state import State, kueue_definitions
from tests.k8s.standin.etcd import Etcd

_NO_PATHS = (
    "the request has been made before all known HTTP paths have been installed, please try again"
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificate", required=True, help="PEM with key and certificate")
    parser.add_argument("--ca", required=True, help="PEM of the authority of client certificates")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--crd", action="append", default=[], help="JSON (.gz) or YAML file")
    parser.add_argument("--no-controllers", action="store_true")
    parser.add_argument("--no-kueue", action="store_true")
    parser.add_argument("--bookmark-s", type=float, default=10.0)
    parser.add_argument("--etcd", type=Path, help="file from which a server goes on")
    parser.add_argument("--starting-s", type=float, default=0.0, help="of one that goes on")
    return parser.parse_args()


def read_definition(path: Path) -> dict[str, Any]:
    """A CustomResourceDefinition from a file: JSON, perhaps compressed, or YAML."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if data.lstrip().startswith(b"{"):
        definition: dict[str, Any] = json.loads(data)
    else:
        import yaml

        definition = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return definition


def with_old_version(definition: dict[str, Any]) -> dict[str, Any]:
    """The slim recording has v1 only; the recorded server had v1alpha1 too."""
    versions = definition["spec"]["versions"]
    if [item["name"] for item in versions] != ["v1"]:
        return definition
    old = {**versions[0], "name": "v1alpha1", "storage": False}
    return {**definition, "spec": {**definition["spec"], "versions": [*versions, old]}}


class Server:
    """The API on one port, the control routes on another."""

    def __init__(self, state: State, context: ssl.SSLContext) -> None:
        self.state, self.context = state, context
        app = web.Application(client_max_size=1 << 40)
        app.router.add_route("*", "/{path:.*}", Api(state).handle)
        app.on_response_prepare.append(self._headers)
        self.runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        self.port = 0
        self._back = asyncio.Event()

    async def _headers(self, _: web.Request, response: web.StreamResponse) -> None:
        """A real API server does not say what it is, and its clock may be wrong."""
        response.headers.pop("Server", None)
        if ahead_s := self.state.faults.clock_s():
            response.headers["Date"] = formatdate(time.time() + ahead_s, usegmt=True)

    async def start(self, port: int) -> None:
        await self.runner.setup()
        await self._listen(port)

    async def _listen(self, port: int) -> None:
        site = web.TCPSite(
            *(self.runner, "127.0.0.1", port),
            ssl_context=self.context,
            reuse_address=True,
            backlog=512,
        )
        await site.start()
        self.site, self.port = site, self.runner.addresses[0][1]

    def come_back(self) -> None:
        """End `away` before its time."""
        self._back.set()

    async def away(self, seconds: float) -> None:
        """Nobody listens and every connection is cut, then all is as before."""
        port = self.port
        self._back.clear()
        # Not site.stop(): it would wait for open connections.
        self.site._server.close()
        self.runner._sites.remove(self.site)
        for connection in list(self.runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._back.wait(), seconds)
        await self._listen(port)


def _define(state: State, arguments: argparse.Namespace) -> None:
    for path in arguments.crd:
        state.define(with_old_version(read_definition(Path(path))))
    for definition in [] if arguments.no_kueue else kueue_definitions():
        state.define(definition)


def _begin(state: State, seconds: float) -> None:
    """A server that starts knows no path at first, and then nobody's rules."""
    now_s = time.monotonic()
    state.faults.add(Fault("503", message=_NO_PATHS, until=now_s + seconds / 2))
    state.auth.rules_from_s = now_s + seconds


async def _serve(arguments: argparse.Namespace) -> None:
    state = State(
        controllers=not arguments.no_controllers,
        bookmark_s=arguments.bookmark_s,
    )
    etcd = Etcd(arguments.etcd) if arguments.etcd else None
    if etcd is not None and etcd.restore(state):
        _begin(state, arguments.starting_s)
    else:
        _define(state, arguments)
    if etcd is not None:
        etcd.follow(state)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(arguments.certificate)
    context.load_verify_locations(arguments.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = Server(state, context)
    await server.start(arguments.port)
    control = Control(state, server)
    await control.start()
    if state.controllers:
        Controllers(state).start()
    print(json.dumps({"port": server.port, "control": control.port}), flush=True)
    # The one who started us holds the other end: we must not outlive it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(_arguments()))


if __name__ == "__main__":
    main()
