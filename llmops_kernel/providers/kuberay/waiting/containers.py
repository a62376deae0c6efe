"""Reasons why a pod with a node does not run: images, references, crashes, probes, mounts."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation, last_end, newest
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    condition,
    event_text,
    event_time_s,
    fields,
    name_of,
    objects,
    one_line,
    text,
    whole,
)
from llmops_kernel.providers.protocol import Waiting

_IMAGE: Final = {
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}  # fmt: skip
_REFERENCE: Final = re.compile(
    r"(?P<kind>secret|configmap) \"?(?P<name>[\w.-]+(?:/[\w.-]+)?)\"? not found", re.I
)
_KEY: Final = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)", re.I
)


def container_reason(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    spec = fields(pod, "spec")
    for group, containers in (
        ("initContainerStatuses", "initContainers"),
        ("containerStatuses", "containers"),
    ):
        for status in objects(pod, "status", group):
            if waiting := _of_status(status, pod, observation, objects(spec, containers)):
                return waiting
    return (
        _mount(pod, observation)
        or _pulling(pod, observation)
        or _init(pod, observation)
        or _probe(pod, observation)
    )


def _of_status(
    status: Obj, pod: Obj, observation: ClusterObservation, containers: list[Obj]
) -> Waiting | None:
    waits = fields(status, "state", "waiting")
    reason, message = text(waits, "reason"), text(waits, "message")
    if reason in _IMAGE:
        container = next((c for c in containers if name_of_container(c) == status.get("name")), {})
        image = text(container, "image") or text(status, "image")
        return image_reason(image, reason, message, pod, observation)
    if reason in ("CreateContainerConfigError", "CreateContainerError"):
        return reference_reason(message) or stuck(
            "config", f"a container cannot be created: {one_line(message) or reason}"
        )
    if reason in ("RunContainerError", "StartError"):
        return stuck("crash", f"a container cannot start: {one_line(message) or reason}")
    if reason == "PostStartHookError":
        return _post_start(message, pod, observation)
    ended = fields(status, "state", "terminated")
    if reason == "CrashLoopBackOff" or (ended and ended.get("exitCode") not in (0, None)):
        return _crash(status, pod, observation)
    return None


def name_of_container(container: Obj) -> str:
    return text(container, "name")


# Crashes


def ended_reason(pod: Obj, observation: ClusterObservation) -> Waiting:
    """Explain a pod that has ended: evicted, or its container ended and is not restarted."""
    reason = text(pod, "status", "reason")
    if reason in ("Evicted", "Preempting", "Preempted", "NodeLost", "Shutdown", "NodeShutdown"):
        detail = one_line(text(pod, "status", "message"))
        return Waiting(
            message="the pod was evicted from its node"
            f" ({reason}{f': {detail}' if detail else ''})",
            remedy="KubeRay creates a new pod; if the node ran out of disk or memory, set `disk`"
            " or `memory` in the template",
            kind="evicted",
        )
    disrupted = condition(pod, "DisruptionTarget")
    if disrupted.get("status") == "True":
        detail = one_line(text(disrupted, "message") or text(disrupted, "reason"))
        return Waiting(
            message=f"the pod was removed from its node: {detail}",
            remedy="wait: KubeRay creates a new pod",
            kind="evicted",
        )
    for status in objects(pod, "status", "containerStatuses"):
        if fields(status, "state", "terminated").get("exitCode") not in (0, None):
            return _crash(status, pod, observation)
    detail = one_line(text(pod, "status", "message") or reason)
    return Waiting(
        message=f"the pod has failed{f': {detail}' if detail else ''}",
        remedy=f"`kubectl describe pod {name_of(pod)}` shows more",
        kind="crash",
    )


def _crash(status: Obj, pod: Obj, observation: ClusterObservation) -> Waiting:
    ended = fields(status, "state", "terminated") or fields(status, "lastState", "terminated")
    if text(ended, "reason") == "OOMKilled":
        return stuck(
            "memory",
            f"its container was killed because it exceeded its"
            f" memory{_limit(status, pod)}{_times(status)}",
            "increase `memory` of the group in the template",
        )
    code = whole(ended, "exitCode")
    exit_text = f"with exit code {code}" if code is not None else "(exit code unknown)"
    last_words = _last_line(ended, pod, observation)
    return stuck(
        "crash",
        f"its container ended {exit_text}{_times(status)}{f': {last_words}' if last_words else ''}",
        f"`kubectl logs {name_of(pod)} --previous` shows its output",
    )


def _times(status: Obj) -> str:
    count = whole(status, "restartCount")
    return f", restarted {count} time{'' if count == 1 else 's'}" if count else ""


def _limit(status: Obj, pod: Obj) -> str:
    for container in objects(pod, "spec", "containers"):
        if text(container, "name") == text(status, "name"):
            limit = fields(container, "resources", "limits").get("memory")
            return f" (limit {limit})" if isinstance(limit, str) else ""
    return ""


def _last_line(ended: Obj, pod: Obj, observation: ClusterObservation) -> str:
    output = text(ended, "message") or observation.logs.get(name_of(pod), "")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines and last_end(pod) else ""


def _post_start(message: str, pod: Obj, observation: ClusterObservation) -> Waiting:
    event = newest(observation.events_about(pod, kind="Pod"), "FailedPostStartHook")
    detail = one_line(event_text(event) if event else message)
    return stuck(
        "crash",
        f"a command of after_start failed{f': {detail}' if detail else ''}",
        "correct after_start in the template",
    )


# --- Missing references ---


def reference_reason(message: str) -> Waiting | None:
    """Explain a missing Secret or ConfigMap, or a missing key of it."""
    if match := _KEY.search(message):
        kind, name = _KINDS[match["kind"].lower()], match["name"].rpartition("/")[2]
        return stuck(
            "reference",
            f"{kind} {name} has no key {match['key']}",
            f"add it to {kind} {name}, or change `key` under `secrets` in the template",
        )
    if match := _REFERENCE.search(message):
        kind, name = _KINDS[match["kind"].lower()], match["name"].rpartition("/")[2]
        secret_type = "generic " if kind == "Secret" else ""
        return stuck(
            "reference",
            f"there is no {kind} {name} in the namespace",
            f"create it: `kubectl create {match['kind'].lower()} {secret_type}{name} ...`",
        )
    return None


_KINDS: Final = {"secret": "Secret", "configmap": "ConfigMap"}


def _mount(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    if _has_begun(pod):
        return None
    reasons = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
    event = newest(observation.events_about(pod, kind="Pod"), *reasons)
    if event is None:
        return None
    message = event_text(event)
    if waiting := reference_reason(message):
        return waiting
    if text(event, "reason") == "FailedCreatePodSandBox":
        return Waiting(
            message=f"the node cannot set up the pod: {one_line(message)}",
            remedy="ask an administrator to check the node's network plug-in",
            kind="node",
        )
    if "Multi-Attach" in message:
        return stuck(
            "volume",
            f"its volume is in use on another node: {one_line(message)}",
            "use a claim with access mode ReadWriteMany for a volume that several pods mount",
        )
    return Waiting(
        message=f"a volume cannot be mounted: {one_line(message)}",
        remedy=f"`kubectl describe pod {name_of(pod)}` shows more; check storage.volumes of the"
        f" template",
        kind="volume",
    )


def _has_begun(pod: Obj) -> bool:
    statuses = [
        *objects(pod, "status", "initContainerStatuses"),
        *objects(pod, "status", "containerStatuses"),
    ]
    return any(fields(s, "state", "running") or fields(s, "state", "terminated") for s in statuses)


# --- Progress ---


def _pulling(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    event = newest(observation.events_about(pod, kind="Pod"), "Pulling", "Pulled")
    if event is None or text(event, "reason") != "Pulling":
        return None
    image = re.search(r'image "([^"]+)"', event_text(event))
    since_s = event_time_s(event)
    elapsed = (
        f" for {observation.now_s - since_s:.0f} s" if 0 < since_s <= observation.now_s else ""
    )
    image_name = f" {image[1]}" if image else ""
    return Waiting(message=f"the node is pulling image{image_name}{elapsed}", kind="progress")


def _init(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    for status in objects(pod, "status", "initContainerStatuses"):
        if not fields(status, "state", "running"):
            continue
        if text(status, "name") == "wait-gcs-ready":
            return Waiting(message="for the head", kind="head")
        return Waiting(message=f"init container {text(status, 'name')} runs", kind="progress")
    return None


def _probe(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    if text(pod, "status", "phase") != "Running":
        return None
    event = newest(observation.events_about(pod, kind="Pod"), "Unhealthy")
    detail = f": {one_line(event_text(event))}" if event else ""
    return Waiting(
        message=f"Ray is starting in the pod and is not healthy yet{detail}", kind="progress"
    )


# --- Images that cannot be pulled ---


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
    names_text = ", ".join(secrets)
    subject = f"image {image or '(without a name)'}"
    missing = newest(observation.events_about(pod, kind="Pod"), "FailedToRetrieveImagePullSecret")
    if waiting := _by_reason(reason, subject):
        return waiting
    if missing is not None and names_text:
        return stuck(
            "image",
            f"{subject} cannot be pulled: its pull secret {names_text} cannot be read",
            f"create it: `kubectl create secret docker-registry {secrets[0]} ...`",
        )
    if waiting := _by_answer(reported, subject, secrets):
        return waiting
    detail = _reason(reported)
    return stuck(
        "image",
        f"{subject} cannot be pulled{f': {detail}' if detail else f' ({reason})'}",
        "check name and tag of `image`, and image_pull_secrets"
        + (f" ({names_text})" if names_text else ""),
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
        names_text = ", ".join(secrets)
        return stuck(
            "image",
            f"{subject} cannot be pulled: the registry rejected pull secret {names_text}"
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
    for prefix in ("rpc error: code = ", "desc = "):
        line = line.rpartition(prefix)[2]
    return line if not line.startswith("Back-off pulling image") else line.partition(": ")[2]
