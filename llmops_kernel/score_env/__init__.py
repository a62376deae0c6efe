"""vLLM's own Python environment: where it is, and what is in it.

vLLM pins torch and transformers to other releases than training uses. Whoever starts an actor with
vLLM names `python()` as its `py_executable`. `llmops_kernel.services.score_env` makes it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.store.paths import cache

ENV_VAR = "LLMOPS_SCORE_ENV"
"""A folder with an environment of the user's own, as in a worker image."""
MADE = ".made"
"""A file in an environment that we made, written last."""
_HERE = Path(__file__).parent
_GPU = Path("/dev/nvidiactl")
_HEADING = "#: "


@dataclass(frozen=True)
class Part:
    """Packages that pip installs in one go."""

    heading: str
    requirements: tuple[str, ...]

    @property
    def with_dependencies(self) -> bool:
        return not self.heading.startswith("without")


def path(root: Path | None = None) -> Path:
    """Return the folder of the environment, made or not; `root`: the cache folder it is in."""
    if chosen := os.environ.get(ENV_VAR):
        return Path(chosen).absolute()
    version = ".".join(map(str, sys.version_info[:3]))  # Ray wants the driver's in its actors.
    text = f"{_pins().read_text()}\n{version}"
    return (root or cache()) / f"score-env-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def python(root: Path | None = None) -> Path:
    """Return the interpreter of the environment."""
    return path(root) / "bin" / "python"


def ready(root: Path | None = None) -> bool:
    """Whether the environment can be used: a half-made one cannot."""
    is_ours = ENV_VAR not in os.environ
    return python(root).exists() and (not is_ours or (path(root) / MADE).exists())


def is_missing(engine: str) -> bool:
    """Whether `engine.type` may be answered by vLLM, and this machine has none yet."""
    may_be_vllm = engine in ("auto", "vllm")
    return may_be_vllm and importlib.util.find_spec("vllm") is None and not ready()


def parts() -> list[Part]:
    """Return what is installed, in this order."""
    found: list[tuple[str, list[str]]] = []
    for line in _pins().read_text().splitlines():
        if line.startswith(_HEADING):
            if not found or found[-1][1]:  # A heading may go on in the next line.
                found.append((line.removeprefix(_HEADING), []))
            continue
        requirement = line.partition("#")[0].strip()
        if requirement:
            found[-1][1].append(requirement)
    return [Part(heading, tuple(requirements)) for heading, requirements in found]


def _pins() -> Path:
    return _HERE / f"requirements-{'gpu' if _GPU.exists() else 'cpu'}.txt"
