"""Finds out once whether this process belongs to a run, and opens its tracker."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from llmops_kernel.track.tracker import Number


class Reports(Protocol):
    """The receiver of this process's reports: a script's tracker, or the training loop."""

    def start(self, *args: Any, **kwargs: Any) -> None: ...
    def step(self, *args: Any, **kwargs: Any) -> None: ...
    def log(self, numbers: Mapping[str, Number]) -> None: ...
    def evaluation(self, *args: Any, **kwargs: Any) -> None: ...
    def checkpoint(self, *args: Any, **kwargs: Any) -> None: ...
    def resume_checkpoint(self) -> Path | None: ...
    def should_stop(self, *args: Any, **kwargs: Any) -> bool: ...


SPEC_ENV_VAR = "LLMOPS_RUN_SPEC"
"""The run's spec, encoded; set in a process that runs a script, inherited by its children."""
BOARD_ENV_VAR = "LLMOPS_RUN_BOARD"
"""Folder that a script's processes on one machine share with the driver."""
SPEC_METADATA = "llmops_spec"
"""Key of the spec in the metadata of the Ray job, where the script's own workers see it."""

# Named as a string: the training stack is on the workers only.
_OPEN = ("llmops_kernel.train.script.tracking", "open_tracker")

_tracker: Reports | None = None
_is_known = False


def tracker() -> Reports | None:
    """Return this process's tracker; None outside a run."""
    return _tracker if _is_known else _find_reports()


def use(value: Reports | None) -> None:
    """Set the tracker of this process."""
    global _tracker, _is_known
    _tracker, _is_known = value, True


def forget() -> None:
    """Look again at the next call; a forked child has a rank of its own."""
    global _tracker, _is_known
    _tracker, _is_known = None, False


def _find_reports() -> Reports | None:
    text = os.environ.get(SPEC_ENV_VAR) or _from_ray_job()
    use(_opened(text) if text else None)
    return _tracker


def _opened(text: str) -> Any:
    module, name = _OPEN
    return getattr(import_module(module), name)(text)


def _from_ray_job() -> str:
    """Return the spec in the metadata of the Ray job whose worker this process is."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return ""
    metadata = import_module("llmops_kernel.driver.ray_job").metadata()
    return str(metadata.get(SPEC_METADATA, ""))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
