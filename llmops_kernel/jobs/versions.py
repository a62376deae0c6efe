"""Which Ray releases of a cluster can run the jobs of this package."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llmops_kernel.errors import SubmissionError
from llmops_kernel.version import SUPPORTED_RAY

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_ray_version(reported: Mapping[str, str]) -> None:
    """Raise SubmissionError if the cluster's Ray is of another minor release than ours.

    `reported` is the dashboard's answer; a cluster that reports no version is not refused. The
    client itself may have no Ray, so its own installation is not looked at. A patch release has
    the same modules; train/ray/compat.py checks what it leans on and falls back.
    """
    theirs = reported.get("ray_version", "")
    if is_supported(theirs):
        return
    raise SubmissionError(
        f"The cluster runs Ray {theirs}; this release of llmops-kernel needs Ray {SUPPORTED_RAY}.",
        remedy=f"set ray_version: {SUPPORTED_RAY} and an image with Ray {SUPPORTED_RAY} in the"
        f" cluster template, then `llmops up` again; or install the llmops-kernel release for"
        f" Ray {theirs}",
    )


def is_supported(version: str) -> bool:
    """Return whether a Ray version is of our minor release; True for an unreadable one."""
    theirs, ours = _RELEASE.match(version), _RELEASE.match(SUPPORTED_RAY)
    if theirs is None or ours is None:
        return True
    return theirs.groups()[:2] == ours.groups()[:2]
