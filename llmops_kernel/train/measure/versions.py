"""Versions of what computes, for the journal."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

_PACKAGES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "ray")


@cache
def installed_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
