"""The template of a cluster on Kubernetes: what its RayCluster is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.kuberay_fields import KubeRayFields
from llmops_kernel.config.models.kuberay_pods import PodSettings, WorkerGroup
from llmops_kernel.config.models.section import NODE_PRICE_ENV_VAR, Broken
from llmops_kernel.version import SUPPORTED_RAY


class KubeRayTemplate(KubeRayFields):
    """Everything `llmops.up` needs for a cluster on Kubernetes; the same file, the same cluster."""

    example: ClassVar[Mapping[str, Any]] = {
        "image": f"rayproject/ray:{SUPPORTED_RAY}-py311-cpu",
        "worker_groups": [{"name": "workers", "cpus": "4", "memory": "16Gi"}],
    }

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)

    def effect(self) -> list[str]:
        return [
            f"Cluster {self.name}: a Ray head on Kubernetes ({_where(self)}), {self.warm.words}.",
            *(f"Worker group {_group(group)}." for group in self.worker_groups),
            *_conditions(self),
            f"A stopped run has {self.stop_wait_s:g} s to save its checkpoint.",
        ]


def _where(template: KubeRayFields) -> str:
    contexts = " or ".join(template.contexts) or "the current context"
    return f"{contexts}, namespace {template.namespace}" if template.namespace else contexts


def _group(group: WorkerGroup) -> str:
    """`h100: 2 pods, at most 4, each with 191 CPUs, 1722Gi and 8 GPUs on a3-highgpu-8g`."""
    pods = counted(group.replicas * group.num_hosts, "pod")
    cpus = f"{group.pod_cpus} CPU{'' if group.pod_cpus == '1' else 's'}"
    highest = group.highest * group.num_hosts
    most = f", at most {highest}" if group.highest != group.replicas else ""
    hosts = f" ({group.num_hosts} a replica)" if group.num_hosts > 1 else ""
    gpus = f" and {counted(group.pod_gpus, 'GPU')}" if group.pod_gpus else ""
    host = f" on {group.host_type}" if group.host_type else ""
    spot = ", on spot machines" if group.spot else ""
    price = f", {group.price.words} each" if group.price.words else ""
    return (
        f"{group.name}: {pods}{most}{hosts}, each with {cpus}, {group.pod_memory}{gpus}{host}"
        f"{spot}{price}"
    )


def _conditions(template: KubeRayFields) -> list[str]:
    lines = []
    if template.queue:
        lines.append(f"Kueue starts it when queue {template.queue} has enough quota.")
    idle = template.idle
    if idle.suspend_after_s is not None:
        lines.append(f"Suspended after {_time(idle.suspend_after_s)} without work.")
    if idle.time_to_live_s is not None:
        ends = "deleted" if idle.at_end == "delete" else "suspended"
        after = _time(idle.time_to_live_s)
        lines.append(f"Always {ends} {after} after its start, even while runs are active.")
    return lines


def _time(seconds: float) -> str:
    for unit, size in (("day", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            number = seconds / size
            return counted(number, unit) if unit == "day" else f"{number:g} {unit}"
    return f"{seconds:g} s"


# --- Rules between the fields of a KubeRay template, and detection of secrets ---


MAX_QUEUED_GROUPS: Final = 17
"""Kueue admits a Workload of at most 18 pod sets, and the head is one."""
_MANAGERS: Final = ("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue")
_SECRET_NAME: Final = re.compile(
    r"(^|_)(TOKEN|(API|ACCESS|SECRET|PRIVATE|ACCOUNT)?_?KEY(_ID)?|SECRET|PASSWORD|PASSWD|PWD"
    r"|CREDENTIALS?)$",
    re.I,
)
_SECRET_VALUE: Final = re.compile(
    r"^(hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,}"
    r"|xox[abp]-[\w-]{10,}|eyJ[\w-]+\.[\w-]+\.[\w-]+)$"
    r"|://[^/@:\s]+:[^/@\s]+@|BEGIN [A-Z ]*PRIVATE KEY"
)
_OWN_ENV: Final = {
    "RAY_AUTH_MODE": "token authentication is always on",
    "RAY_AUTH_TOKEN": "the operator creates the token",
    "RAY_AUTH_TOKEN_PATH": "the operator creates the token",
    "RAY_START_HOOK": "it starts the warm workers; set warm.enabled=false to set it here",
    "LLMOPS_WARM_DIR": "set warm.enabled",
    "LLMOPS_RUN_STORAGE": "set storage.runs",
    "LLMOPS_COPY_OUTPUTS": "set storage.copy_outputs",
    NODE_PRICE_ENV_VAR: "set price",
}
_OWN_MOUNTS: Final = ("/dev/shm", "/opt/llmops", "/var/run/llmops")


def broken_rules(template: KubeRayFields) -> list[Broken]:
    return [broken for rule in _RULES for broken in rule(template)]


def _groups(template: KubeRayFields) -> Iterator[Broken]:
    seen: set[str] = set()
    for index, group in enumerate(template.worker_groups):
        path = f"worker_groups.{index}.name"
        if group.name in seen:
            yield Broken(
                path, f"two worker groups have the name {group.name}", "rename one of them"
            )
        seen.add(group.name)
        if template.queue and group.name == "head":
            yield Broken(
                path, "Kueue uses this name for the head's pod", "rename the group", ("queue",)
            )
    if template.queue and len(seen) > MAX_QUEUED_GROUPS:
        yield Broken(
            "worker_groups",
            f"{len(template.worker_groups)} worker groups in a queue: Kueue accepts"
            f" {MAX_QUEUED_GROUPS} besides the head",
            "merge groups with equal pods, or remove queue",
            ("queue",),
        )


def _runs_folder(template: KubeRayFields) -> Iterator[Broken]:
    runs = template.storage.runs
    if runs is None:
        return
    if "://" in runs:
        if is_secret("", runs):
            yield Broken(
                "storage.runs",
                "the URL has credentials in it, and secrets must be given by reference",
                "take them out, and name the Secret that has them in `secrets`",
            )
        return
    kept = [volume for volume in template.storage.volumes if volume.claim or volume.host_path]
    above = [v for v in kept if PurePosixPath(runs).is_relative_to(PurePosixPath(v.mount))]
    if not above:
        yield Broken(
            "storage.runs",
            f"{runs} is not on a volume of storage.volumes that outlives its pod",
            f"add a volume such as {{mount: {runs}, claim: NAME}}, or give a bucket's URL",
            ("storage.volumes",),
        )
    elif all(volume.read_only for volume in above):
        yield Broken(
            "storage.runs",
            f"{runs} is mounted read-only",
            "remove read_only from that volume",
            ("storage.volumes",),
        )


def _environments(template: KubeRayFields) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "env", template.env
    for path, pod in _pods(template):
        yield f"{path}.env", pod.env


def _pods(template: KubeRayFields) -> Iterator[tuple[str, PodSettings]]:
    yield "head", template.head
    for index, group in enumerate(template.worker_groups):
        yield f"worker_groups.{index}", group


def _env(template: KubeRayFields) -> Iterator[Broken]:
    for path, env in _environments(template):
        for name, value in env.items():
            if name in _OWN_ENV:
                yield Broken(f"{path}.{name}", "cannot be set here", _OWN_ENV[name])
            elif is_secret(name, value):
                yield _secret(f"{path}.{name}", name)
    raw = [("raycluster", template.raycluster)]
    raw += [(f"{path}.pod", pod.pod) for path, pod in _pods(template)]
    for path, data in raw:
        for name in _literal_secrets(data):
            yield _secret(path, name)


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable's value belongs in a Secret; the path of a file does not."""
    if not value or value.startswith("/"):
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def _literal_secrets(raw: Any) -> Iterator[str]:
    """Names of variables with a literal secret, anywhere in Kubernetes' own YAML."""
    if isinstance(raw, Mapping):
        name, value = raw.get("name"), raw.get("value")
        if isinstance(name, str) and isinstance(value, str) and is_secret(name, value):
            yield name
        for item in raw.values():
            yield from _literal_secrets(item)
    elif isinstance(raw, list | tuple):
        for item in raw:
            yield from _literal_secrets(item)


def _secret(path: str, name: str) -> Broken:
    key = name.lower().replace("_", "-")
    return Broken(
        path,
        f"{name} looks like a secret, and secrets must be given by reference",
        f"put it into a Secret and write `secrets: [{{secret: NAME, key: {key}, env: {name}}}]`;"
        " it becomes the pods' valueFrom.secretKeyRef",
    )


def _mounts(template: KubeRayFields) -> Iterator[Broken]:
    shared = [
        (f"storage.volumes.{i}.mount", v.mount) for i, v in enumerate(template.storage.volumes)
    ]
    shared += [
        (f"secrets.{i}.mount", ref.mount) for i, ref in enumerate(template.secrets) if ref.mount
    ]
    for index, (path, pod) in enumerate(_pods(template)):
        own = [(f"{path}.volumes.{i}.mount", v.mount) for i, v in enumerate(pod.volumes)]
        seen: set[str] = set()
        for number, (where, mount) in enumerate([*shared, *own]):
            folder = str(PurePosixPath(mount))
            if index and number < len(shared):
                seen.add(folder)  # reported with the first pod
                continue
            if folder in _OWN_MOUNTS:
                hint = "set shm" if folder == "/dev/shm" else "choose another folder"
                yield Broken(where, f"{folder} already has a volume", hint)
            elif folder in seen:
                yield Broken(where, f"two volumes are mounted at {folder}", "choose another folder")
            seen.add(folder)


def _prices(template: KubeRayFields) -> Iterator[Broken]:
    """All or none: a run that uses the head and one group would know only a part of its cost."""
    prices = {path: pod.price for path, pod in _pods(template)}
    given = [price for price in prices.values() if price.node_hour is not None]
    for path, price in prices.items():
        if price.node_hour is None and given:
            message = "is missing: the head and all worker groups need a price, or none of them"
            yield Broken(f"{path}.price.node_hour", message, "add the price, or remove the others")
        elif given and price.currency != given[0].currency:
            message = f"is {price.currency}, another price of this template is {given[0].currency}"
            yield Broken(f"{path}.price.currency", message, "give all prices in one currency")
    # The energy of a run is measured over all of its nodes.
    energy = {(price.kwh, price.currency) for price in prices.values()}
    if len(energy) > 1 and any(kwh is not None for kwh, _ in energy):
        path = next(path for path, price in prices.items() if price.kwh is not None)
        message = "is not that of the other pods: the head and all worker groups need the same"
        yield Broken(f"{path}.price.kwh", message, "give all of them one price of a kWh")


def _access(template: KubeRayFields) -> Iterator[Broken]:
    access = template.access
    if access.way == "url" and access.url is None:
        yield Broken(
            "access.url",
            "is required when access.way is url",
            "set it to the address of the Ingress or Route",
        )
    if access.sends_in_clear:
        yield Broken(
            "access.url",
            f"the cluster's token would be sent unencrypted to {access.url}",
            "use https://; or accept that with access.allow_http: true",
            ("access.allow_http",),
        )


def _ray_version(template: KubeRayFields) -> Iterator[Broken]:
    if template.ray_version != SUPPORTED_RAY:
        yield Broken(
            "ray_version",
            f"Ray {template.ray_version} is not supported: this release of llmops-kernel needs"
            f" Ray {SUPPORTED_RAY} on the cluster",
            f"set ray_version: {SUPPORTED_RAY} and an image with Ray {SUPPORTED_RAY}",
        )


def _managed_by(template: KubeRayFields) -> Iterator[Broken]:
    value = template.managed_by
    if value is not None and value not in _MANAGERS:
        yield Broken("managed_by", f"KubeRay rejects {value!r}", f"use {' or '.join(_MANAGERS)}")
    elif value == _MANAGERS[1] and template.queue is None:
        yield Broken(
            "managed_by", "MultiKueue accepts only clusters with a queue", "set queue", ("queue",)
        )


_RULES: tuple[Callable[[KubeRayFields], Iterator[Broken]], ...] = (
    _groups,
    _runs_folder,
    _env,
    _mounts,
    _prices,
    _access,
    _managed_by,
    _ray_version,
)
