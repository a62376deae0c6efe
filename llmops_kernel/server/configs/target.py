"""Target of a request about a config: its kind, and the folder of its paths."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.reading.templates import FOLDER
from llmops_kernel.kinds.reading import file_kind_named, file_kind_of, file_kinds
from llmops_kernel.server.base import LLMOpsHandler, RequestError
from llmops_kernel.server.wire.configs import ConfigTarget


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
