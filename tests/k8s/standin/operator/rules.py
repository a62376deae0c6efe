"""The operator's own rules and their messages: a spec that breaks one gets an event, no status."""

from __future__ import annotations

import re
from typing import Any

from tests.k8s.standin.runtime.client import Obj

MAX_NAME = 53
_DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_DNS_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    " regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
V2_ENV = "RAY_enable_autoscaler_v2"


def metadata_error(name: str) -> str | None:
    if len(name) > MAX_NAME:
        return f"RayCluster name should be no more than {MAX_NAME} characters"
    if not _DNS_1035.match(name):
        return f"RayCluster name should be a valid DNS1035 label: [{_DNS_1035_MESSAGE}]"
    return None


def spec_error(spec: Obj) -> str | None:
    """The first rule broken, in the operator's order; None when all hold."""
    checks = (_head, _workers, _fault_tolerance, _autoscaler, _auth, _gates)
    return next((error for check in checks if (error := check(spec))), None)


def _head(spec: Obj) -> str | None:
    head = spec["headGroupSpec"]
    if not _containers(head):
        return "headGroupSpec should have at least one container"
    return _group("Head", head)


def _workers(spec: Obj) -> str | None:
    for group in spec.get("workerGroupSpecs") or []:
        name, low, high = group["groupName"], group.get("minReplicas"), group.get("maxReplicas")
        if not _containers(group):
            return "workerGroupSpec should have at least one container"
        if not autoscaling(spec) and (low is None or high is None):
            return (
                f"worker group {name} must set both minReplicas and maxReplicas when autoscaling"
                " is disabled"
            )
        if low is not None and low < 0:
            return f"worker group {name} has negative minReplicas {low}"
        if high is not None and high < 0:
            return f"worker group {name} has negative maxReplicas {high}"
        if low is not None and high is not None and low > high:
            return f"worker group {name} has minReplicas {low} greater than maxReplicas {high}"
        if error := _group(name, group) or _idle_timeout(spec, group):
            return error
    return None


def _group(name: str, group: Obj) -> str | None:
    params = group.get("rayStartParams") or {}
    own = any(params.get(key) for key in ("num-cpus", "num-gpus", "memory", "resources"))
    if own and group.get("resources"):
        return (
            f"resource fields should not be set in both rayStartParams and Resources for {name}"
            " group; please use only one"
        )
    if "labels" in params:
        return (
            f"rayStartParams['labels'] is not supported for {name} group; please use the top-level"
            " Labels field instead"
        )
    return None


def _idle_timeout(spec: Obj, group: Obj) -> str | None:
    seconds, name = group.get("idleTimeoutSeconds"), group["groupName"]
    if seconds is None:
        return None
    if seconds < 0:
        return f"worker group {name}: idleTimeoutSeconds must be non-negative, got {seconds}"
    if autoscaler_v2(spec) or head_env(spec, V2_ENV) in ("1", "true"):
        return None
    return (
        f"worker group {name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please"
        " set .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment"
        " variable to 'true' in the head pod if using KubeRay < 1.4.0)"
    )


def _fault_tolerance(spec: Obj) -> str | None:
    options = spec.get("gcsFaultToleranceOptions")
    if options is None:
        if head_env(spec, "RAY_REDIS_ADDRESS") is not None:
            return (
                "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but"
                " GcsFaultToleranceOptions is not set. Please set GcsFaultToleranceOptions to"
                " enable GCS fault tolerance"
            )
        return None
    if (spec["headGroupSpec"].get("rayStartParams") or {}).get("redis-password"):
        return (
            "cannot set `redis-password` in rayStartParams when GcsFaultToleranceOptions is"
            " enabled - use GcsFaultToleranceOptions.RedisPassword instead"
        )
    for variable, field in (
        ("REDIS_PASSWORD", "RedisPassword"),
        ("RAY_REDIS_ADDRESS", "RedisAddress"),
    ):
        if head_env(spec, variable) is not None:
            return (
                f"cannot set `{variable}` env var in head Pod when GcsFaultToleranceOptions is"
                f" enabled - use GcsFaultToleranceOptions.{field} instead"
            )
    if options.get("backend") == "rocksdb":
        return (
            "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend:"
            " 'rocksdb') requires the GCSFaultToleranceEmbeddedStorage feature gate to be enabled"
        )
    return None


def _autoscaler(spec: Obj) -> str | None:
    if not autoscaling(spec):
        value = head_env(spec, V2_ENV)
        if value in ("1", "true"):
            return (
                f"environment variable {V2_ENV} cannot be set to '{value}' when"
                " enableInTreeAutoscaling is false. Please set enableInTreeAutoscaling: true to"
                " use autoscaler v2"
            )
        return None
    groups = spec.get("workerGroupSpecs") or []
    for group in groups:
        if group.get("suspend"):
            return f"worker group {group['groupName']} cannot be suspended with Autoscaler enabled"
    if not autoscaler_v2(spec):
        return None
    if spec["headGroupSpec"]["template"]["spec"].get("restartPolicy") not in (None, "", "Never"):
        return "restartPolicy for head Pod should be Never or unset when using autoscaler V2"
    for group in groups:
        if group["template"]["spec"].get("restartPolicy") not in (None, "", "Never"):
            return (
                f"restartPolicy for worker group {group['groupName']} should be Never or unset"
                " when using autoscaler V2"
            )
    return None


def _auth(spec: Obj) -> str | None:
    options = spec.get("authOptions") or {}
    by_kubernetes, version = options.get("enableK8sTokenAuth"), spec.get("rayVersion", "")
    if options.get("mode") != "token":
        if by_kubernetes:
            return (
                "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"
            )
        return None
    if not version:
        return (
            "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or"
            " later is required"
        )
    parts = _version(version)
    if parts is None:
        return (
            f"authOptions.mode is 'token' but RayVersion format is invalid: {version}, could not"
            f' parse "{version}" as version'
        )
    if parts < (2, 52, 0):
        return f"authOptions.mode is 'token' but minimum Ray version is 2.52.0, got {version}"
    if by_kubernetes and parts < (2, 55, 0):
        return (
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got"
            f" {version}"
        )
    if by_kubernetes and options.get("secretName"):
        return "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"
    return None


def _gates(spec: Obj) -> str | None:
    if spec.get("historyServerOptions") is not None:
        return "RayClusterHistoryServer feature gate is not enabled"
    if spec.get("networkPolicy") is not None:
        return "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled"
    if spec.get("tlsOptions") is not None:
        return "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"
    return None


def autoscaling(spec: Obj) -> bool:
    return bool(spec.get("enableInTreeAutoscaling"))


def autoscaler_v2(spec: Obj) -> bool:
    return autoscaling(spec) and (spec.get("autoscalerOptions") or {}).get("version") == "v2"


def fault_tolerant(spec: Obj) -> bool:
    return spec.get("gcsFaultToleranceOptions") is not None


def token_auth(spec: Obj) -> bool:
    return (spec.get("authOptions") or {}).get("mode") == "token"


def head_env(spec: Obj, name: str) -> Any:
    containers = _containers(spec["headGroupSpec"])
    for variable in (containers[0].get("env") or []) if containers else []:
        if variable["name"] == name:
            return variable.get("value", "")
    return None


def _containers(group: Obj) -> list[Obj]:
    return list((group.get("template") or {}).get("spec", {}).get("containers") or [])


def _version(text: str) -> tuple[int, ...] | None:
    match = re.match(r"^v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None
