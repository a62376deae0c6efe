"""A schedule as a Kubernetes CronJob: its pod clones the revision and runs one command."""

from __future__ import annotations

from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.document import dump
from llmops_kernel.providers.capabilities import TimedJob
from llmops_kernel.providers.kuberay.render.pods import (
    plain_env,
    secret_env,
    secret_volumes,
)
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.store.paths import CACHE_ENV_VAR, HOME_ENV_VAR

Raw = dict[str, Any]
SCHEDULE_LABEL: Final = names.PREFIX + "schedule"
_USER: Final = 1000
"""`ray` in Ray's own images."""
_LATE_S: Final = 3600
"""A start that is later than this is left out. With more than 100 missed ones in this time, as no
expression of five fields has them, the controller would start none at all."""
_GIT_FOLDER: Final = "/var/run/llmops-git"
_RESOURCES: Final = {"cpu": "1", "memory": "2Gi"}
_LOCKED: Final[Raw] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def cron_job(template: KubeRayTemplate, job: TimedJob, *, namespace: str) -> str:
    """Return the manifest as YAML. The same schedule gives the same text."""
    labels = {
        **template.labels,
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        SCHEDULE_LABEL: job.name,
    }
    spec = {
        "schedule": job.cron,
        "timeZone": job.timezone,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _LATE_S,
        "suspend": job.suspended,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {
            "metadata": {"labels": labels},
            "spec": {
                "backoffLimit": 0,  # A second try might train twice.
                "template": {"metadata": {"labels": labels}, "spec": _pod(template, job)},
            },
        },
    }
    metadata = {"name": job.name, "namespace": namespace, "labels": labels}
    return dump({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})


def _pod(template: KubeRayTemplate, job: TimedJob) -> Raw:
    secrets, secret_mounts = secret_volumes(template.secrets)
    claim: Raw = {"persistentVolumeClaim": {"claimName": job.claim}}
    git_volume: Raw = {"name": "git", "secret": {"secretName": job.git_secret}}
    mounts: list[Raw] = [
        {"name": "work", "mountPath": job.WORK},
        {"name": "home", "mountPath": job.HOME},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    identity: Raw = {
        "serviceAccountName": template.service_account,
        "imagePullSecrets": [{"name": name} for name in template.image_pull_secrets],
        "nodeSelector": dict(template.head.node_selector),
        "tolerations": [dict(each) for each in template.head.tolerations],
    }
    return {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{key: value for key, value in identity.items() if value},
        "initContainers": [
            _git(template, job, number, mounts=mounts) for number in range(len(_checkout(job)))
        ],
        "containers": [_run(template, job, mounts=[*mounts, *secret_mounts])],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {"name": "home", **(claim if job.claim else {"emptyDir": {}})},
            {"name": "tmp", "emptyDir": {}},
            *([git_volume] if job.git_secret else []),
            *secrets,
        ],
    }


def _run(template: KubeRayTemplate, job: TimedJob, *, mounts: list[Raw]) -> Raw:
    from_secrets, env_from = secret_env(template.secrets)
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    own_env = {
        "HOME": job.WORK,
        HOME_ENV_VAR: job.HOME,
        CACHE_ENV_VAR: f"{job.WORK}/cache",
        "LLMOPS_GROUP": job.name,
    }
    return {
        **_container(template, job),
        "name": "run",
        "command": [job.command[0]],
        "args": list(job.command[1:]),
        "env": [pod_name, *plain_env({**template.env, **own_env}), *from_secrets],
        **({"envFrom": env_from} if env_from else {}),
        "volumeMounts": mounts,
    }


def _git(template: KubeRayTemplate, job: TimedJob, number: int, *, mounts: list[Raw]) -> Raw:
    env = {"HOME": job.WORK, "GIT_TERMINAL_PROMPT": "0"}
    if job.git_secret:
        mounts = [*mounts, {"name": "git", "mountPath": _GIT_FOLDER, "readOnly": True}]
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "credential.helper",
            "GIT_CONFIG_VALUE_0": f"store --file={_GIT_FOLDER}/credentials",
        }
    return {
        **_container(template, job),
        "name": f"git-{number + 1}",
        "command": ["git"],
        "args": _checkout(job)[number],
        "env": plain_env(env),
        "volumeMounts": mounts,
    }


def _container(template: KubeRayTemplate, job: TimedJob) -> Raw:
    return {
        "image": job.image or template.image,
        "imagePullPolicy": template.image_pull_policy,
        "securityContext": dict(_LOCKED),
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
    }


def _checkout(job: TimedJob) -> list[list[str]]:
    """Return the arguments of the git commands that bring the revision, each its own process."""
    if job.branch is not None:
        return [
            ["clone", "--depth=1", f"--branch={job.branch}", "--", job.repository, job.CODE],
        ]
    return [
        ["clone", "--no-checkout", "--", job.repository, job.CODE],
        ["-C", job.CODE, "checkout", "--detach", str(job.revision)],
    ]
