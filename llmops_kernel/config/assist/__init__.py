"""Help for editing configs: completion, hover, mistakes, forms; pure functions of a text."""

from __future__ import annotations

from llmops_kernel.config.assist.complete import Completion, Hover, complete, hover
from llmops_kernel.config.assist.diagnose import Diagnostic, diagnose, examine, located
from llmops_kernel.config.assist.file_kinds import form_schema, render

__all__ = [
    "Completion",
    "Diagnostic",
    "Hover",
    "complete",
    "diagnose",
    "examine",
    "form_schema",
    "hover",
    "located",
    "render",
]
