"""What `llmops doctor` looks at: one function a line, each with what was seen and the remedy."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata

PACKAGE = "llmops-kernel"
PYTHON_MIN, PYTHON_END = (3, 11), (3, 14)
REINSTALL = 'make install, or pip install -c constraints.txt "llmops-kernel[train,lab]"'
_SHOWN_VERSIONS = (
    PACKAGE,
    "ray",
    "torch",
    "transformers",
    "deepspeed",
    "accelerate",
    "peft",
    "datasets",
    "jupyterlab",
    "anywidget",
)


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    level: Level
    seen: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


Check = Callable[[], Finding]


def ok(name: str, seen: str) -> Finding:
    return Finding(name, Level.OK, seen)


def warn(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.WARN, seen, remedy)


def fail(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, Level.FAIL, seen, remedy)


def all_checks() -> list[Check]:
    """In the order of the report: the machine, the software, the notebook."""
    from llmops_kernel.cli import doctor_machine as machine
    from llmops_kernel.cli import doctor_stack as stack

    return [
        python_version,
        machine.processors,
        machine.memory,
        machine.shared_memory,
        machine.disk_space,
        machine.folders,
        machine.loopback,
        machine.proxies,
        stack.torch_build,
        stack.accelerators,
        stack.ray_release,
        stack.deepspeed_ops,
        pinned_versions,
        stack.demo_model,
        stack.notebook_parts,
        stack.chromium,
        stack.clusters,
    ]


def run_check(check: Check) -> Finding:
    """A check that breaks is a finding, not the end of the report."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.replace("_", " ")
        seen = f"the check itself broke: {type(error).__name__}: {error}"
        return fail(name, seen, "report this line; the other checks are not touched by it")


def python_version() -> Finding:
    seen = f"{platform.python_version()} at {sys.executable}"
    if PYTHON_MIN <= sys.version_info[:2] < PYTHON_END:
        return ok("Python", seen)
    return fail("Python", seen, "use Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 install")


def installed_versions() -> dict[str, str]:
    """Versions of what matters, "not installed" where it is missing."""
    found = {name: installed(name) or "not installed" for name in _SHOWN_VERSIONS}
    return {**found, "python": platform.python_version()}


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pinned_versions() -> Finding:
    """What is installed against what the package asks for, extras [train] and [lab] included."""
    name = "versions"
    asked = metadata.requires(PACKAGE) or []
    wrong, missing, count = compare_with_pins(asked)
    if wrong:
        return fail(name, "; ".join(wrong), REINSTALL)
    if missing:
        seen = f"not installed: {', '.join(missing)}"
        return warn(name, seen, f"needed for a cluster on this machine: {REINSTALL}")
    return ok(name, f"{count} direct requirements installed and in range")


def compare_with_pins(requirements: list[str]) -> tuple[list[str], list[str], int]:
    """(not in range, not installed, how many were looked at)."""
    from packaging.requirements import Requirement

    wrong, missing, count = [], [], 0
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker and not any(
            wanted.marker.evaluate({"extra": extra}) for extra in ("", "train", "lab")
        ):
            continue
        count += 1
        have = installed(wanted.name)
        if have is None:
            missing.append(wanted.name)
        elif not wanted.specifier.contains(have, prereleases=True):
            wrong.append(f"{wanted.name} {have} instead of {wanted.specifier}")
    return wrong, missing, count
