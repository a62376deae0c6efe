"""The pods of a RayCluster: head and worker groups as Kubernetes objects."""

from __future__ import annotations

from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_pods import HeadSettings, PodSettings, WorkerGroup
from llmops_kernel.config.models.quantity import num_bytes
from llmops_kernel.config.models.section import NodePrice
from llmops_kernel.providers.kuberay.render import storage, tls, warm_files
from llmops_kernel.providers.kuberay.render.overlay import overlaid
from llmops_kernel.providers.kuberay.render.placement import placement
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.store.outputs.parts import COPY_LIMIT_ENV_VAR, DEFAULT_LIMIT_BYTES
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
            more={group.gpu_resource: str(gpus)} if gpus else {},
        ),
    }
    pod = _pod(template, group, container, group=group.name, own_token=own_token)
    return _finished(template, group, pod)


def _pod(
    template: KubeRayTemplate, settings: PodSettings, container: Raw, *, group: str, own_token: bool
) -> Raw:
    shm, shm_mount = storage.shm(settings, container["resources"]["limits"]["memory"])
    own, own_mounts = storage.volumes([*template.storage.volumes, *settings.volumes])
    secret, secret_mounts = storage.secret_volumes(template.secrets)
    warm = template.warm.enabled
    container |= {
        "image": settings.image or template.image,
        "imagePullPolicy": template.image_pull_policy,
        **_variables(template, settings, own_token=own_token),
        "volumeMounts": [
            *(shm_mount, *own_mounts, *secret_mounts),
            *(warm_files.mounts() if warm else []),
            *(tls.mounts() if template.tls.enabled else []),
        ],
        **storage.after_start(template),
    }
    return {
        # The operator takes the first container as Ray's.
        "containers": [container],
        "volumes": [
            *(shm, *own, *secret),
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
    made = tls.init_container(image=container["image"], pull_policy=container["imagePullPolicy"])
    return {"initContainers": [made]}


def _variables(template: KubeRayTemplate, settings: PodSettings, *, own_token: bool) -> Raw:
    from_secrets, env_from = storage.secret_env(template.secrets)
    env = [
        *storage.plain_env(_environment(template, settings)),
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
    given = {**template.env, **settings.env}
    env = {
        # A stopped run needs time for its checkpoint; Ray's default is 3 s. Whole seconds only.
        "RAY_JOB_STOP_WAIT_TIME_S": str(max(1, round(template.stop_wait_s))),
        "RAY_STREAM_RUNTIME_ENV_LOG_TO_JOB_DRIVER_LOG": "1",
    }
    if template.autoscaling.enabled:
        # Ray Train gives workers 60 s to start, and a new GPU node takes minutes.
        env["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(_LONGEST_SCALE_UP_S)
    env |= given
    alone = not any(group.highest for group in template.worker_groups)
    env |= NodePrice.of(settings.price, only_node=alone).environment()
    if template.tls.enabled:
        env |= tls.environment()
    if template.storage.runs:
        env[RUN_STORAGE_ENV_VAR] = template.storage.runs
    if (copied_bytes := num_bytes(template.storage.copy_outputs)) != DEFAULT_LIMIT_BYTES:
        env[COPY_LIMIT_ENV_VAR] = str(copied_bytes)
    if template.warm.enabled:
        env |= warm_files.environment(template.warm, python_path=given.get("PYTHONPATH"))
    return env


def _token_env(cluster: str) -> list[Raw]:
    """Return the variables that the operator adds itself if its CRD has `authOptions`."""
    ref = {"name": names.token_secret(cluster), "key": names.TOKEN_KEY}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": ref}},
    ]


def _resources(*, cpus: str, memory: str, disk: str | None, more: Raw | None = None) -> Raw:
    """Return requests equal to limits: throttled or evicted training helps nobody."""
    amounts: Raw = {"cpu": cpus, "memory": memory, **(more or {})}
    if disk is not None:
        amounts["ephemeral-storage"] = disk
    return {"requests": amounts, "limits": dict(amounts)}


def ray_start_params(settings: HeadSettings | WorkerGroup) -> dict[str, str]:
    """Return only what differs from the pod's resources, which the operator passes to Ray."""
    if isinstance(settings, HeadSettings):
        return {"dashboard-host": "0.0.0.0", "num-cpus": str(settings.num_cpus)}
    params = {"num-cpus": settings.num_cpus, "num-gpus": settings.num_gpus}
    return {name: str(value) for name, value in params.items() if value is not None}
