"""What Jupyter loads: routes, settings, and an orderly end."""

from __future__ import annotations

from pathlib import Path

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool

from llmops_kernel import __version__
from llmops_kernel.server.manager import MANAGER_KEY, Manager
from llmops_kernel.server.routes import all_routes


class LLMOpsApp(ExtensionApp):
    """Configured like any Jupyter application: `c.LLMOpsApp.dashboard_writable = True`."""

    name = "llmops"
    description = "Ray clusters and training runs in JupyterLab."
    load_other_extensions = True
    version = __version__

    dashboard_writable = Bool(
        False,
        help="Let the embedded Ray Dashboard change things (it then passes on POST, PUT, DELETE).",
    ).tag(config=True)

    def initialize_settings(self) -> None:
        assert self.serverapp is not None  # Jupyter links it before it asks for settings.
        root = Path(self.serverapp.root_dir).expanduser()
        self.settings[MANAGER_KEY] = Manager(
            root_dir=root, dashboard_writable=self.dashboard_writable
        )

    def initialize_handlers(self) -> None:
        self.handlers.extend(all_routes())

    async def stop_extension(self) -> None:
        await self.settings[MANAGER_KEY].close()
