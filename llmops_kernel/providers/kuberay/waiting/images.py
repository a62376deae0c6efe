"""Why an image cannot be pulled."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation, newest
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    event_text,
    objects,
    one_line,
    text,
)
from llmops_kernel.providers.protocol import Waiting

_REFUSED: Final = re.compile(
    r"unauthori[sz]ed|authentication required|authorization failed|pull access denied"
    r"|\bdenied\b|forbidden|\b40[13]\b|no basic auth",
    re.IGNORECASE,
)
_ABSENT: Final = re.compile(
    r"not found|manifest unknown|manifest for .* not|\b404\b|does not exist|name unknown", re.I
)
_PLATFORM: Final = re.compile(r"no match for platform|exec format|no matching manifest", re.I)
_LIMIT: Final = re.compile(r"toomanyrequests|too many requests|\b429\b|rate limit", re.I)
_NETWORK: Final = re.compile(
    r"no such host|i/o timeout|connection refused|x509|TLS handshake|dial tcp|deadline exceeded",
    re.I,
)


def stuck(kind: str, message: str, remedy: str = "") -> Waiting:
    return Waiting(
        message=message,
        remedy=remedy or "this is the kubelet's message: correct in the template what it names",
        kind=kind,
        is_stuck=True,
    )


def image_reason(
    image: str, reason: str, message: str, pod: Obj, observation: ClusterObservation
) -> Waiting:
    """Explain it from the container's reason and message, and from the events of its pod."""
    reported = f"{message} {_pull_fault(image, pod, observation)}"
    secrets = [s for s in (text(r, "name") for r in objects(pod, "spec", "imagePullSecrets")) if s]
    listed = ", ".join(secrets)
    subject = f"image {image or '(without a name)'}"
    missing = newest(observation.events_about(pod, kind="Pod"), "FailedToRetrieveImagePullSecret")
    if found := _by_reason(reason, subject):
        return found
    if missing is not None and listed:
        return stuck(
            "image",
            f"{subject} cannot be pulled: its pull secret {listed} cannot be read",
            f"create it: `kubectl create secret docker-registry {secrets[0]} ...`",
        )
    if found := _by_answer(reported, subject, secrets):
        return found
    why = _reason(reported)
    return stuck(
        "image",
        f"{subject} cannot be pulled{f': {why}' if why else f' ({reason})'}",
        "check name and tag of `image`, and image_pull_secrets"
        + (f" ({listed})" if listed else ""),
    )


def _by_reason(reason: str, subject: str) -> Waiting | None:
    """Explain what the kubelet knows without asking a registry."""
    if reason == "InvalidImageName":
        return stuck(
            "image", f"{subject} is not a valid image name", "correct `image` in the template"
        )
    if reason == "ErrImageNeverPull":
        return stuck(
            "image",
            f"{subject} is not on the node and image_pull_policy is Never",
            "set image_pull_policy to IfNotPresent, or load the image onto the nodes",
        )
    return None


def _by_answer(reported: str, subject: str, secrets: list[str]) -> Waiting | None:
    """Explain the answer of the registry, or of the network before it."""
    if _LIMIT.search(reported):
        return Waiting(
            message=f"{subject} cannot be pulled: the registry's pull rate limit was reached",
            remedy="wait, or set image_pull_secrets of an account with a higher limit",
            kind="image",
        )
    if _ABSENT.search(reported) and "access denied" not in reported:
        return stuck(
            "image",
            f"{subject} cannot be pulled: the registry has no such image",
            "check name and tag of `image` in the template",
        )
    if _REFUSED.search(reported):
        return _unauthorized(subject, secrets)
    if _PLATFORM.search(reported):
        return stuck(
            "image",
            f"{subject} cannot be pulled: it is not built for the node's CPU architecture",
            "build it for that architecture, or select other nodes with node_selector",
        )
    if _NETWORK.search(reported):
        return stuck(
            "image",
            f"{subject} cannot be pulled: the node cannot reach the registry ({_reason(reported)})",
            "check the registry's name, and proxies and certificates of the nodes",
        )
    return None


def _unauthorized(subject: str, secrets: list[str]) -> Waiting:
    if secrets:
        listed = ", ".join(secrets)
        return stuck(
            "image",
            f"{subject} cannot be pulled: the registry rejected pull secret {listed}"
            " (or the image does not exist)",
            f"renew it (`kubectl create secret docker-registry {secrets[0]} ...`), or check"
            " the image's name",
        )
    return stuck(
        "image",
        f"{subject} cannot be pulled: the registry requires authentication, and the pods have no"
        f" image pull secret"
        " (or the image does not exist)",
        "create a pull secret (`kubectl create secret docker-registry NAME ...`) and set"
        " image_pull_secrets: [NAME]",
    )


def _pull_fault(image: str, pod: Obj, observation: ClusterObservation) -> str:
    """Return an earlier event's message: the kubelet's back-off hides the registry's answer."""
    for event in observation.events_about(pod, kind="Pod"):
        line = event_text(event)
        if text(event, "reason") == "Failed" and "pull" in line.lower() and image in line:
            return line
    return ""


def _reason(reported: str) -> str:
    """Return the part after the last of the kubelet's prefixes."""
    line = one_line(reported)
    for cut in ("rpc error: code = ", "desc = "):
        line = line.rpartition(cut)[2]
    return line if not line.startswith("Back-off pulling image") else line.partition(": ")[2]
