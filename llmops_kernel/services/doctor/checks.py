"""The checks of `llmops doctor`, in the order of its report."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from llmops_kernel.services.doctor import stack
from llmops_kernel.services.doctor.findings import (
    IN_CLONE,
    REINSTALL,
    Check,
    Finding,
    fail,
    installed,
    ok,
    warn,
)

PACKAGE = "llmops-kernel"
PYTHON_MIN, PYTHON_END = (3, 11), (3, 14)
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


def all_checks() -> list[Check]:
    """Return all checks: the machine, the software, the notebook."""
    return [
        python_version,
        stack.processors,
        stack.memory,
        stack.shared_memory,
        stack.disk_space,
        stack.folders,
        stack.loopback,
        stack.proxies,
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
    """Run one check; an exception in it becomes a failed finding."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.replace("_", " ")
        seen = f"the check itself failed: {type(error).__name__}: {error}"
        return fail(name, seen, "the other checks are not affected")


def python_version() -> Finding:
    seen = f"{platform.python_version()} at {sys.executable}"
    if PYTHON_MIN <= sys.version_info[:2] < PYTHON_END:
        return ok("Python", seen)
    how = "make PYTHON=python3.12 install" if IN_CLONE else "python3.12 -m venv .venv"
    return fail("Python", seen, f"use Python 3.11, 3.12 or 3.13: {how}")


def installed_versions() -> dict[str, str]:
    """Return the versions of the main packages; "not installed" where one is missing."""
    found = {name: installed(name) or "not installed" for name in _SHOWN_VERSIONS}
    return {**found, "python": platform.python_version()}


def pinned_versions() -> Finding:
    """Compare what is installed with the requirements, extras [train] and [lab] included."""
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
    """Return (not in range, not installed, number of requirements checked)."""
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
