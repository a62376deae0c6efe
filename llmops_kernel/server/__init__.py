"""The Jupyter server extension: clusters, runs and configs for the browser."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from llmops_kernel.server.app import LLMOpsApp

    return [{"module": "llmops_kernel.server", "app": LLMOpsApp}]
