"""Makes a catalogue model ready before a run needs it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time

from llmops_kernel.cli.console import out
from llmops_kernel.config.sections import CATALOGUE
from llmops_kernel.errors import ModelError
from llmops_kernel.runs.paths import cache
from llmops_kernel.widgets import format as fmt

# Named as a string: this process must not import the training stack.
_CONVERTER = "llmops_kernel.train.catalogue"


def prepare_model(model_id: str) -> str:
    """Convert a catalogue model into the cache where needed; says in words what it found.

    Raises ModelError with the converter's last line.
    """
    folder = cache() / "models" / model_id
    if model_id not in CATALOGUE:
        return "loaded by the workers from where the config says"
    if (folder / "config.json").exists():
        return f"ready in {folder}"
    began_s = time.monotonic()
    with out(stderr=True).status("Converting it into the cache, once: about half a minute ..."):
        done = subprocess.run(
            [sys.executable, "-m", _CONVERTER, model_id],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ModelError(f"{model_id} could not be converted: {lines[-1]}", remedy="llmops doctor")
    return f"converted into {folder} in {fmt.seconds(time.monotonic() - began_s)}"
