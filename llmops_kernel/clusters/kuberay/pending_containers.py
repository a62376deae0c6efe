"""Why a pod that has a node does not run: images, references, crashes, probes, mounts."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.clusters.kuberay.objects import (
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
from llmops_kernel.clusters.kuberay.world import World, last_end, newest
from llmops_kernel.clusters.provider import Waiting

_IMAGE: Final = {
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}  # fmt: skip
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
_REFERENCE: Final = re.compile(
    r"(?P<kind>secret|configmap) \"?(?P<name>[\w.-]+(?:/[\w.-]+)?)\"? not found", re.I
)
_KEY: Final = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<name>\S+)", re.I
)
_INIT_PATIENCE_S: Final = 300.0


def container_cause(pod: Obj, world: World) -> Waiting | None:
    spec = fields(pod, "spec")
    for group, listed in (
        ("initContainerStatuses", "initContainers"),
        ("containerStatuses", "containers"),
    ):
        for status in objects(pod, "status", group):
            if found := _of_status(status, pod, world, objects(spec, listed)):
                return found
    return _mount(pod, world) or _pulling(pod, world) or _init(pod, world) or _probe(pod, world)


def _of_status(status: Obj, pod: Obj, world: World, containers: list[Obj]) -> Waiting | None:
    waits = fields(status, "state", "waiting")
    reason, message = text(waits, "reason"), text(waits, "message")
    if reason in _IMAGE:
        container = next((c for c in containers if name_of_container(c) == status.get("name")), {})
        image = text(container, "image") or text(status, "image")
        return _image(image, reason, message, pod, world)
    if reason in ("CreateContainerConfigError", "CreateContainerError"):
        return reference_cause(message) or _stuck(
            "config", f"a container cannot be made: {one_line(message) or reason}"
        )
    if reason in ("RunContainerError", "StartError"):
        return _stuck("crash", f"a container cannot start: {one_line(message) or reason}")
    if reason == "PostStartHookError":
        return _post_start(message, pod, world)
    ended = fields(status, "state", "terminated")
    if reason == "CrashLoopBackOff" or (ended and ended.get("exitCode") not in (0, None)):
        return _crash(status, pod, world)
    return None


def name_of_container(container: Obj) -> str:
    return text(container, "name")


def _stuck(kind: str, message: str, remedy: str = "") -> Waiting:
    return Waiting(
        message=message,
        remedy=remedy or "the message is the kubelet's: change what it names in the template",
        kind=kind,
        is_stuck=True,
    )


# Images


def _image(image: str, reason: str, message: str, pod: Obj, world: World) -> Waiting:
    told = f"{message} {_pull_fault(image, pod, world)}"
    secrets = [s for s in (text(r, "name") for r in objects(pod, "spec", "imagePullSecrets")) if s]
    listed = ", ".join(secrets)
    subject = f"image {image or '(without a name)'}"
    missing = newest(world.events_about(pod, kind="Pod"), "FailedToRetrieveImagePullSecret")
    if reason == "InvalidImageName":
        return _stuck("image", f"{subject} is no valid name", "correct `image` in the template")
    if reason == "ErrImageNeverPull":
        return _stuck(
            "image",
            f"{subject} is not on the node and image_pull_policy is Never",
            "take image_pull_policy IfNotPresent, or load the image onto the nodes",
        )
    if missing is not None and listed:
        return _stuck(
            "image",
            f"{subject} cannot be pulled: its pull secret {listed} cannot be read",
            f"`kubectl create secret docker-registry {secrets[0]} ...` in the namespace",
        )
    if _LIMIT.search(told):
        return Waiting(
            message=f"{subject} cannot be pulled: the registry lets nobody pull so often",
            remedy="wait, or give image_pull_secrets of an account with a higher limit",
            kind="image",
        )
    if _ABSENT.search(told) and "access denied" not in told:
        return _stuck(
            "image",
            f"{subject} cannot be pulled: the registry has no such image",
            "check name and tag of `image` in the template",
        )
    if _REFUSED.search(told):
        return _unauthorized(subject, secrets)
    if _PLATFORM.search(told):
        return _stuck(
            "image",
            f"{subject} cannot be pulled: it is not built for the node's kind of processor",
            "build it for that platform, or choose other nodes by node_selector",
        )
    if _NETWORK.search(told):
        return _stuck(
            "image",
            f"{subject} cannot be pulled: the node does not reach the registry ({_reason(told)})",
            "check the registry's name, and proxies and certificates of the nodes",
        )
    why = _reason(told)
    return _stuck(
        "image",
        f"{subject} cannot be pulled{f': {why}' if why else f' ({reason})'}",
        "check name and tag of `image`, and image_pull_secrets"
        + (f" ({listed})" if listed else ""),
    )


def _unauthorized(subject: str, secrets: list[str]) -> Waiting:
    if secrets:
        listed = ", ".join(secrets)
        return _stuck(
            "image",
            f"{subject} cannot be pulled: the registry refuses pull secret {listed}"
            " (or it has no such image)",
            f"renew Secret {secrets[0]} (`kubectl create secret docker-registry`), or check"
            " the image's name",
        )
    return _stuck(
        "image",
        f"{subject} cannot be pulled: the registry wants a login, and the pods name no pull"
        " secret (or it has no such image)",
        "`kubectl create secret docker-registry NAME ...`, and image_pull_secrets: [NAME]",
    )


def _pull_fault(image: str, pod: Obj, world: World) -> str:
    """The kubelet's back-off hides the registry's answer; an earlier event has it."""
    for event in world.events_about(pod, kind="Pod"):
        line = event_text(event)
        if text(event, "reason") == "Failed" and "pull" in line.lower() and image in line:
            return line
    return ""


def _reason(told: str) -> str:
    """The part after the last of the kubelet's wrappings."""
    line = one_line(told)
    for cut in ("rpc error: code = ", "desc = "):
        line = line.rpartition(cut)[2]
    return line if not line.startswith("Back-off pulling image") else line.partition(": ")[2]


# Crashes


def ended_cause(pod: Obj, world: World) -> Waiting:
    """A pod that is over: evicted, or its container ended and is not restarted."""
    reason = text(pod, "status", "reason")
    if reason in ("Evicted", "Preempting", "Preempted", "NodeLost", "Shutdown", "NodeShutdown"):
        why = one_line(text(pod, "status", "message"))
        return Waiting(
            message=f"the pod was put off its node ({reason}{f': {why}' if why else ''})",
            remedy="a new pod follows; if the node ran out of disk or memory, ask for `disk` or"
            " `memory` in the template",
            kind="evicted",
        )
    disrupted = condition(pod, "DisruptionTarget")
    if disrupted.get("status") == "True":
        why = one_line(text(disrupted, "message") or text(disrupted, "reason"))
        return Waiting(
            message=f"the pod was taken off its node: {why}",
            remedy="a new pod follows",
            kind="evicted",
        )
    for status in objects(pod, "status", "containerStatuses"):
        if fields(status, "state", "terminated").get("exitCode") not in (0, None):
            return _crash(status, pod, world)
    why = one_line(text(pod, "status", "message") or reason)
    return Waiting(
        message=f"the pod has failed{f': {why}' if why else ''}",
        remedy=f"`kubectl describe pod {name_of(pod)}`",
        kind="crash",
    )


def _crash(status: Obj, pod: Obj, world: World) -> Waiting:
    ended = fields(status, "state", "terminated") or fields(status, "lastState", "terminated")
    if text(ended, "reason") == "OOMKilled":
        return _stuck(
            "memory",
            f"its container was killed for memory{_limit(status, pod)}{_times(status)}",
            "give the group more `memory` in the template",
        )
    code = whole(ended, "exitCode")
    how = f"with exit code {code}" if code is not None else "(how is not told)"
    said = _last_line(ended, pod, world)
    return _stuck(
        "crash",
        f"its container ended {how}{_times(status)}{f': {said}' if said else ''}",
        f"`kubectl logs {name_of(pod)} --previous` has all it said",
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


def _last_line(ended: Obj, pod: Obj, world: World) -> str:
    said = text(ended, "message") or world.logs.get(name_of(pod), "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines and last_end(pod) else ""


def _post_start(message: str, pod: Obj, world: World) -> Waiting:
    event = newest(world.events_about(pod, kind="Pod"), "FailedPostStartHook")
    why = one_line(event_text(event) if event else message)
    return _stuck(
        "crash",
        f"a command of after_start failed{f': {why}' if why else ''}",
        "correct after_start in the template",
    )


# What is missing


def reference_cause(message: str) -> Waiting | None:
    """A Secret or ConfigMap, or a key of it, that is not there."""
    if found := _KEY.search(message):
        kind, name = _KINDS[found["kind"].lower()], found["name"].rpartition("/")[2]
        return _stuck(
            "reference",
            f"{kind} {name} has no key {found['key']}",
            f"add it to {kind} {name}, or change `key` under `secrets` in the template",
        )
    if found := _REFERENCE.search(message):
        kind, name = _KINDS[found["kind"].lower()], found["name"].rpartition("/")[2]
        made = "generic " if kind == "Secret" else ""
        return _stuck(
            "reference",
            f"there is no {kind} {name} in the namespace",
            f"`kubectl create {found['kind'].lower()} {made}{name} ...`",
        )
    return None


_KINDS: Final = {"secret": "Secret", "configmap": "ConfigMap"}


def _mount(pod: Obj, world: World) -> Waiting | None:
    if _has_begun(pod):
        return None
    reasons = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
    event = newest(world.events_about(pod, kind="Pod"), *reasons)
    if event is None:
        return None
    message = event_text(event)
    if found := reference_cause(message):
        return found
    if text(event, "reason") == "FailedCreatePodSandBox":
        return Waiting(
            message=f"the node cannot set the pod up: {one_line(message)}",
            remedy="an admin looks at the node's network plug-in",
            kind="node",
        )
    if "Multi-Attach" in message:
        return _stuck(
            "volume",
            f"its volume is in use on another node: {one_line(message)}",
            "take a claim with access mode ReadWriteMany for what several pods mount",
        )
    return Waiting(
        message=f"a volume cannot be mounted: {one_line(message)}",
        remedy=f"`kubectl describe pod {name_of(pod)}`; check storage.volumes of the template",
        kind="volume",
    )


def _has_begun(pod: Obj) -> bool:
    statuses = [
        *objects(pod, "status", "initContainerStatuses"),
        *objects(pod, "status", "containerStatuses"),
    ]
    return any(fields(s, "state", "running") or fields(s, "state", "terminated") for s in statuses)


# What only takes its time


def _pulling(pod: Obj, world: World) -> Waiting | None:
    event = newest(world.events_about(pod, kind="Pod"), "Pulling", "Pulled")
    if event is None or text(event, "reason") != "Pulling":
        return None
    image = re.search(r'image "([^"]+)"', event_text(event))
    since_s = event_time_s(event)
    passed = f" for {world.now_s - since_s:.0f} s" if 0 < since_s <= world.now_s else ""
    named = f" {image[1]}" if image else ""
    return Waiting(message=f"the node pulls image{named}{passed}", kind="progress")


def _init(pod: Obj, world: World) -> Waiting | None:
    for status in objects(pod, "status", "initContainerStatuses"):
        if not fields(status, "state", "running"):
            continue
        if text(status, "name") == "wait-gcs-ready":
            return Waiting(message="for the head", kind="head")
        return Waiting(message=f"init container {text(status, 'name')} runs", kind="progress")
    return None


def _probe(pod: Obj, world: World) -> Waiting | None:
    if text(pod, "status", "phase") != "Running":
        return None
    event = newest(world.events_about(pod, kind="Pod"), "Unhealthy")
    why = f": {one_line(event_text(event))}" if event else ""
    return Waiting(message=f"Ray starts in the pod and is not healthy yet{why}", kind="progress")
