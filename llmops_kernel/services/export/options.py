"""Options of an export, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from llmops_kernel.store.export_job import GgufType, Precision, Target

TARGETS: tuple[str, ...] = get_args(Target)
PRECISIONS: tuple[str, ...] = get_args(Precision)
GGUF_TYPES: tuple[str, ...] = get_args(GgufType)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an export, each as in `llmops export --help`."""

    to: str = "merged"
    path: str | None = None
    force: bool = False
    dtype: str = "auto"
    quantization: str = "f16"
    lora: bool = False
    name: str | None = None
    base: str | None = None
    check: int = 4
    repo: str | None = None
    public: bool = False


@dataclass(frozen=True, kw_only=True)
class Export:
    """Result of an export: the files that were written, and how to use them."""

    run_id: str
    target: str
    path: Path | None
    """The folder; None for a hub or a URL."""
    location: str
    """Folder, URL or hub address."""
    files: tuple[str, ...]
    """Relative to the location."""
    size_bytes: int
    notes: tuple[str, ...] = ()
    """What is to be known about it, such as how many answers were compared."""
    command: str = ""
    """Uses what was written; can be copied."""
