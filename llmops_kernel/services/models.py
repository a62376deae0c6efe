"""Prepares a catalogue model before a run needs it, in a separate process."""

from __future__ import annotations

import subprocess
import sys
import time

from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.errors import ModelError
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.store.paths import cache
from llmops_kernel.views import format as fmt

# A string: this process must not import the training stack.
_CONVERTER = "llmops_kernel.models.catalogue"


def prepare_model(model_id: str, *, progress: Progress | None = None) -> str:
    """Convert a catalogue model into the cache where needed; return one line about the result.

    Raises ModelError with the converter's last line.
    """
    folder = cache() / "models" / model_id
    if model_id not in CATALOGUE:
        return "loaded by the workers, as the config says"
    if (folder / "config.json").exists():
        return f"ready in {folder}"
    if progress is not None:
        progress(f"Converting {model_id} into the cache, once")
    began_s = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", _CONVERTER, model_id], capture_output=True, text=True, check=False
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise ModelError(f"{model_id} could not be converted: {lines[-1]}", remedy="llmops doctor")
    return f"converted into {folder} in {fmt.seconds(time.monotonic() - began_s)}"
