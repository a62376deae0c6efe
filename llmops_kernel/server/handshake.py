"""The first request of a page, and the operations that run."""

from __future__ import annotations

from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.wire.common import PROTOCOL, Handshake
from llmops_kernel.store.paths import home
from llmops_kernel.version import VERSION


class HandshakeHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(
            Handshake(
                version=VERSION,
                protocol=PROTOCOL,
                home=str(home()),
                root=str(self.manager.root_dir),
                dashboard_writable=self.manager.dashboard_writable,
            )
        )


class OperationsHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        self.reply(self.manager.operations.list())


class OperationHandler(LLMOpsHandler):
    @protected
    async def get(self, operation_id: str) -> None:
        info = self.manager.operations.get(operation_id)
        if info is None:
            raise RequestError(
                f"There is no operation {operation_id!r}",
                remedy="the Jupyter server may have been restarted; check the clusters and runs",
                status=404,
            )
        self.reply(info)


ROUTES = [
    (r"handshake", HandshakeHandler),
    (r"operations", OperationsHandler),
    (r"operations/([0-9a-f]+)", OperationHandler),
]
