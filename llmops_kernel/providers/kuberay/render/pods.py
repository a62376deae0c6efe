"""The pods of a RayCluster: head and worker groups as Kubernetes objects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_pods import (
    HeadSettings,
    PodSettings,
    SecretRef,
    Volume,
    WorkerGroup,
)
from llmops_kernel.config.models.quantity import num_bytes
from llmops_kernel.config.models.section import NodePrice
from llmops_kernel.providers.kuberay.render import tls, warm_files
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.store.outputs import COPY_LIMIT_ENV_VAR, DEFAULT_LIMIT_BYTES
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR

Raw = dict[str, Any]
_HEAD_PORTS: Final = (
    (6379, "gcs-server"),
    (names.DASHBOARD_PORT, names.DASHBOARD_PORT_NAME),
    (10001, "client"),
    (8080, "metrics"),
)
_LONGEST_SCALE_UP_S: Final = 1800


def head_pod(template: KubeRayTemplate, *, own_token: bool) -> Raw:
    head = template.head
    container: Raw = {
        "name": names.HEAD_CONTAINER,
        "ports": [{"containerPort": port, "name": name} for port, name in _HEAD_PORTS],
        "resources": _resources(cpus=head.cpus, memory=head.memory, disk=head.disk),
    }
    pod = _pod(template, head, container, group="headgroup", own_token=own_token)
    return _finished(template, head, pod)


def worker_pod(template: KubeRayTemplate, group: WorkerGroup, *, own_token: bool) -> Raw:
    gpus = group.pod_gpus
    container: Raw = {
        "name": names.WORKER_CONTAINER,
        "resources": _resources(
            cpus=group.pod_cpus,
            memory=group.pod_memory,
            disk=group.disk,
            extra={group.gpu_resource: str(gpus)} if gpus else {},
        ),
    }
    pod = _pod(template, group, container, group=group.name, own_token=own_token)
    return _finished(template, group, pod)


def _pod(
    template: KubeRayTemplate, settings: PodSettings, container: Raw, *, group: str, own_token: bool
) -> Raw:
    shm_volume, shm_mount = shm(settings, container["resources"]["limits"]["memory"])
    user_volumes, user_mounts = volumes([*template.storage.volumes, *settings.volumes])
    secret, secret_mounts = secret_volumes(template.secrets)
    warm = template.warm.enabled
    container |= {
        "image": settings.image or template.image,
        "imagePullPolicy": template.image_pull_policy,
        **_variables(template, settings, own_token=own_token),
        "volumeMounts": [
            *(shm_mount, *user_mounts, *secret_mounts),
            *(warm_files.mounts() if warm else []),
            *(tls.mounts() if template.tls.enabled else []),
        ],
        **after_start(template),
    }
    return {
        # The operator takes the first container as Ray's.
        "containers": [container],
        "volumes": [
            *(shm_volume, *user_volumes, *secret),
            *(warm_files.volumes(template.name) if warm else []),
            *(tls.volumes(template.tls, cluster=template.name) if template.tls.enabled else []),
        ],
        **_before_ray(template, container),
        **placement(settings, cluster=template.name, group=group),
        **_identity(template),
    }


def _before_ray(template: KubeRayTemplate, container: Raw) -> Raw:
    if not template.tls.enabled:
        return {}
    init_container = tls.init_container(
        image=container["image"], pull_policy=container["imagePullPolicy"]
    )
    return {"initContainers": [init_container]}


def _variables(template: KubeRayTemplate, settings: PodSettings, *, own_token: bool) -> Raw:
    from_secrets, env_from = secret_env(template.secrets)
    env = [
        *plain_env(_environment(template, settings)),
        *(_token_env(template.name) if own_token else []),
        *from_secrets,
    ]
    return {"env": env, **({"envFrom": env_from} if env_from else {})}


def _identity(template: KubeRayTemplate) -> Raw:
    fields: Raw = {}
    if template.service_account:
        fields["serviceAccountName"] = template.service_account
    if template.image_pull_secrets:
        fields["imagePullSecrets"] = [{"name": name} for name in template.image_pull_secrets]
    if template.autoscaling.enabled:
        # Autoscaler v2 replaces pods itself; it would not know a restarted one.
        fields["restartPolicy"] = "Never"
    return fields


def _finished(template: KubeRayTemplate, settings: PodSettings, pod: Raw) -> Raw:
    metadata = {"metadata": {"labels": dict(template.labels)}} if template.labels else {}
    return {**metadata, "spec": overlaid(pod, settings.pod)}


def _environment(template: KubeRayTemplate, settings: PodSettings) -> dict[str, str]:
    user_env = {**template.env, **settings.env}
    env = {
        # A stopped run needs time for its checkpoint; Ray's default is 3 s. Whole seconds only.
        "RAY_JOB_STOP_WAIT_TIME_S": str(max(1, round(template.stop_wait_s))),
        "RAY_STREAM_RUNTIME_ENV_LOG_TO_JOB_DRIVER_LOG": "1",
    }
    if template.autoscaling.enabled:
        # Ray Train gives workers 60 s to start, and a new GPU node takes minutes.
        env["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(_LONGEST_SCALE_UP_S)
    if settings is template.head:
        env |= template.metrics.environment()
    env |= user_env
    is_only_node = not any(group.highest for group in template.worker_groups)
    env |= NodePrice.of(settings.price, only_node=is_only_node).environment()
    if template.tls.enabled:
        env |= tls.environment()
    if template.storage.runs:
        env[RUN_STORAGE_ENV_VAR] = template.storage.runs
    if (copied_bytes := num_bytes(template.storage.copy_outputs)) != DEFAULT_LIMIT_BYTES:
        env[COPY_LIMIT_ENV_VAR] = str(copied_bytes)
    if template.warm.enabled:
        env |= warm_files.environment(template.warm, python_path=user_env.get("PYTHONPATH"))
    return env


def _token_env(cluster: str) -> list[Raw]:
    """Return the variables that the operator adds itself if its CRD has `authOptions`."""
    ref = {"name": names.token_secret(cluster), "key": names.TOKEN_KEY}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": ref}},
    ]


def _resources(*, cpus: str, memory: str, disk: str | None, extra: Raw | None = None) -> Raw:
    """Return requests equal to limits: throttled or evicted training helps nobody."""
    amounts: Raw = {"cpu": cpus, "memory": memory, **(extra or {})}
    if disk is not None:
        amounts["ephemeral-storage"] = disk
    return {"requests": amounts, "limits": dict(amounts)}


def ray_start_params(settings: HeadSettings | WorkerGroup) -> dict[str, str]:
    """Return only what differs from the pod's resources, which the operator passes to Ray."""
    if isinstance(settings, HeadSettings):
        return {"dashboard-host": "0.0.0.0", "num-cpus": str(settings.num_cpus)}
    params = {"num-cpus": settings.num_cpus, "num-gpus": settings.num_gpus}
    return {name: str(value) for name, value in params.items() if value is not None}


# --- Placement: selectors, tolerations, affinity and spread ---


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SPOT_TAINTS: Final = (
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
"""Taints of spot nodes; AWS sets none by default."""
_SPOT_LABELS: Final = (
    *_SPOT_TAINTS,
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
)


def placement(settings: PodSettings, *, cluster: str, group: str) -> Raw:
    """Return the fields of a pod's spec; those at their default are omitted."""
    group_labels = {names.RAY_CLUSTER_LABEL: cluster, names.RAY_GROUP_LABEL: group}
    fields = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": _tolerations(settings),
        "affinity": _affinity(settings, group_labels),
        "topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": group_labels}, **raw}
            for raw in settings.topology_spread
        ],
        "priorityClassName": settings.priority_class,
    }
    return {name: value for name, value in fields.items() if value}


def _tolerations(settings: PodSettings) -> list[Raw]:
    tolerations = [dict(raw) for raw in settings.tolerations]
    if isinstance(settings, WorkerGroup):
        if settings.pod_gpus:
            # GPU nodes are tainted with the name of their resource nearly everywhere.
            tolerations.append(_tolerate(settings.gpu_resource))
        if settings.spot:
            tolerations += [_tolerate(key, value) for key, value in _SPOT_TAINTS]
    return [raw for index, raw in enumerate(tolerations) if raw not in tolerations[:index]]


def _tolerate(key: str, value: str | None = None) -> Raw:
    if value is None:
        return {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _affinity(settings: PodSettings, group_labels: Mapping[str, str]) -> Raw:
    affinity = dict(settings.affinity)
    if settings.one_per_node and not isinstance(settings, HeadSettings):
        term = {
            "labelSelector": {"matchLabels": dict(group_labels)},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = dict(affinity.get("podAntiAffinity") or {})
        affinity["podAntiAffinity"] = {**anti, _REQUIRED: [*(anti.get(_REQUIRED) or []), term]}
    if isinstance(settings, WorkerGroup) and settings.spot:
        node = dict(affinity.get("nodeAffinity") or {})
        affinity["nodeAffinity"] = {**node, _REQUIRED: _on_spot(node.get(_REQUIRED) or {})}
    return affinity


def _on_spot(affinity: Mapping[str, Any]) -> Raw:
    """Require spot nodes. Terms are alternatives, so each of the user's gets each cloud's label."""
    terms = affinity.get("nodeSelectorTerms") or [{}]
    return {
        "nodeSelectorTerms": [
            {
                **term,
                "matchExpressions": [
                    *(term.get("matchExpressions") or []),
                    {"key": key, "operator": "In", "values": [value]},
                ],
            }
            for term in terms
            for key, value in _SPOT_LABELS
        ]
    }


# --- Volumes, secrets and environment variables ---


_SHM_SHARE = 0.3  # Ray's own share for its object store, which is in /dev/shm.
_MIB = 2**20


def volumes(declared: Sequence[Volume]) -> tuple[list[Raw], list[Raw]]:
    """Return (volumes of the pod, mounts of the container); a claim mounted twice is one volume."""
    pod: dict[str, Raw] = {}
    mounts = []
    for volume in declared:
        source = _source(volume)
        existing_name = next((name for name, existing in pod.items() if existing == source), None)
        shared = "emptyDir" not in source and existing_name is not None
        name = existing_name if shared and existing_name is not None else f"volume-{len(pod)}"
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


# --- Merges raw Kubernetes YAML into the rendered manifest: the templates' escape hatch ---


_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "workerGroupSpecs": "groupName",
}
"""Lists that Kubernetes merges item by item, and by which field; others are replaced as a whole."""


def overlaid(rendered: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `raw` over `rendered`; a `null` removes a field, as in a JSON merge patch."""
    result = dict(rendered)
    for key, value in raw.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, key)
    return result


def _merged(old: Any, new: Any, key: str) -> Any:
    if isinstance(new, Mapping):
        return overlaid(old if isinstance(old, Mapping) else {}, new)
    if isinstance(new, list | tuple):
        by = _KEYS.get(key)
        if by is None or not isinstance(old, list):
            return [_merged(None, item, "") for item in new]
        return _merged_list(old, new, by)
    return new


def _merged_list(old: list[Any], new: list[Any] | tuple[Any, ...], by: str) -> list[Any]:
    """Merge by name. Known items keep their position: Ray's container stays the first."""
    result = list(old)
    scopes = {item.get(by): index for index, item in enumerate(old) if isinstance(item, Mapping)}
    for item in new:
        name = item.get(by) if isinstance(item, Mapping) else None
        if name is not None and name in scopes:
            result[scopes[name]] = overlaid(result[scopes[name]], item)
        else:
            result.append(_merged(None, item, ""))
    return result
