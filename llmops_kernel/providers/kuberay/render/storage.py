"""Volumes, secrets and environment variables of a pod, from its template."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_pods import PodSettings, SecretRef, Volume
from llmops_kernel.config.models.quantity import num_bytes

Raw = dict[str, Any]
_SHM_SHARE = 0.3  # Ray's own share for its object store, which is in /dev/shm.
_MIB = 2**20


def volumes(given: Sequence[Volume]) -> tuple[list[Raw], list[Raw]]:
    """Return (volumes of the pod, mounts of the container); a claim mounted twice is one volume."""
    pod: dict[str, Raw] = {}
    mounts = []
    for volume in given:
        source = _source(volume)
        known = next((name for name, other in pod.items() if other == source), None)
        shared = "emptyDir" not in source and known is not None
        name = known if shared and known is not None else f"volume-{len(pod)}"
        pod[name] = source
        mount: Raw = {"name": name, "mountPath": volume.mount}
        mounts.append({**mount, "readOnly": True} if volume.read_only else mount)
    return [{"name": name, **source} for name, source in pod.items()], mounts


def _source(volume: Volume) -> Raw:
    if volume.claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path}}
    if volume.memory is not None:
        return {"emptyDir": {"medium": "Memory", "sizeLimit": volume.memory}}
    return {"emptyDir": {"sizeLimit": volume.local_ssd}}


def shm(settings: PodSettings, memory: str) -> tuple[Raw, Raw]:
    """Return /dev/shm: a container has 64 MB by default, too little for NCCL and for Ray."""
    size = settings.shm or f"{int(num_bytes(memory) * _SHM_SHARE) // _MIB}Mi"
    return (
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "shm", "mountPath": "/dev/shm"},
    )


def secret_volumes(secrets: Sequence[SecretRef]) -> tuple[list[Raw], list[Raw]]:
    pod, mounts = [], []
    for index, ref in enumerate(ref for ref in secrets if ref.mount is not None):
        source: Raw = {"secretName": ref.secret}
        if ref.key is not None:
            source["items"] = [{"key": ref.key, "path": ref.key}]
        if ref.optional:
            source["optional"] = True
        pod.append({"name": f"secret-{index}", "secret": source})
        mounts.append({"name": f"secret-{index}", "mountPath": ref.mount, "readOnly": True})
    return pod, mounts


def secret_env(secrets: Sequence[SecretRef]) -> tuple[list[Raw], list[Raw]]:
    """Return (env, envFrom)."""
    env, env_from = [], []
    for ref in secrets:
        optional = {"optional": True} if ref.optional else {}
        if ref.env is not None:
            source = {"name": ref.secret, "key": ref.key, **optional}
            env.append({"name": ref.env, "valueFrom": {"secretKeyRef": source}})
        elif ref.mount is None:
            env_from.append({"secretRef": {"name": ref.secret, **optional}})
    return env, env_from


def plain_env(values: Mapping[str, str]) -> list[Raw]:
    return [{"name": name, "value": value} for name, value in values.items()]


def after_start(template: KubeRayTemplate) -> Raw:
    """Return the container's `lifecycle`.

    A command that fails ends the container, and KubeRay starts it again.
    """
    if not template.after_start:
        return {}
    script = "\n".join(shlex.join(command) for command in template.after_start)
    return {"lifecycle": {"postStart": {"exec": {"command": ["/bin/sh", "-ec", script]}}}}
