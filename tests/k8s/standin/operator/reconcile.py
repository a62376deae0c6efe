"""What KubeRay's operator 1.7 does with a RayCluster, one pass at a time."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.k8s.standin.operator import access
from tests.k8s.standin.operator import names as names
from tests.k8s.standin.operator import pods as pods_of
from tests.k8s.standin.operator import rules as rules
from tests.k8s.standin.operator import status as status_of
from tests.k8s.standin.operator.deletions import ended, is_leaving, must_go, where
from tests.k8s.standin.runtime.client import Api, ApiError, Mirror, Obj
from tests.k8s.standin.runtime.events import Recorder

RAYCLUSTERS = "/apis/ray.io/v1"
FINALIZER = "ray.io/gcs-ft-redis-cleanup-finalizer"
OURS = (None, "", "ray.io/kuberay-operator")


class ReconcileError(Exception):
    """A pass that could not be ended; `reason` names it in the condition ReplicaFailure."""

    def __init__(self, message: str, *, reason: str | None = None):
        super().__init__(message)
        self.reason = reason


class Reconciler:
    """Reads mirrors, writes through the API; call it again after `requeue_s`."""

    def __init__(
        self,
        api: Api,
        *,
        clusters: Mirror,
        pods: Mirror,
        services: Mirror,
        requeue_s: float,
        may_run: Callable[[Obj], bool] = lambda _: True,
    ):
        self._api, self._clusters, self._pods, self._services = api, clusters, pods, services
        self._events = Recorder(api, "raycluster-controller")
        self._requeue_s, self._may_run = requeue_s, may_run

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """One pass. Seconds until the next one that nothing else causes; None for never."""
        cluster = self._clusters.get(namespace, name)
        if cluster is None or cluster["spec"].get("managedBy") not in OURS:
            return None
        if not await self._is_valid(cluster):
            return None
        if rules.fault_tolerant(cluster["spec"]):
            later = await self._guard_redis(cluster)
            if later is not None:
                return later or None
        if cluster["metadata"].get("deletionTimestamp"):
            return None
        if not self._may_run(cluster):
            return self._requeue_s
        return await self._make(cluster)

    async def _is_valid(self, cluster: Obj) -> bool:
        scope = where(cluster)
        if error := rules.metadata_error(cluster["metadata"]["name"]):
            message = f"The RayCluster metadata is invalid {scope}: {error}"
            await self._warn(cluster, "InvalidRayClusterMetadata", message)
            return False
        if error := rules.spec_error(cluster["spec"]):
            message = f"The RayCluster spec is invalid {scope}: {error}"
            await self._warn(cluster, "InvalidRayClusterSpec", message)
            return False
        return True

    async def _make(self, cluster: Obj) -> float | None:
        error: ReconcileError | None = None
        try:
            await self._autoscaler_account(cluster)
            await self._autoscaler_role(cluster)
            await self._secret(cluster)
            await self._service(cluster)
            await self._make_pods(cluster)
        except ReconcileError as failed:
            error = failed
        except ApiError as failed:
            error = ReconcileError(str(failed))
        service = self._find_service(cluster)
        if service is None:
            return self._requeue_s  # No status without a head service.
        status = status_of.computed(
            cluster,
            pods=self._pods_of(cluster),
            service=service,
            error=str(error) if error else None,
            failure=error.reason if error else None,
        )
        old = cluster.get("status") or {}
        if status_of.differs(old, status):
            path = f"{_path(cluster)}/status"
            self._clusters.put(await self._api.replace(path, {**cluster, "status": status}))
            return self._requeue_s
        return self._requeue_s if error else 300.0

    async def _autoscaler_account(self, cluster: Obj) -> None:
        if not rules.autoscaling(cluster["spec"]):
            return
        name, namespace = names.service_account(cluster), cluster["metadata"]["namespace"]
        path = f"{access.CORE}/namespaces/{namespace}/serviceaccounts"
        try:
            await self._api.get(f"{path}/{name}")
            return
        except ApiError as error:
            if error.code != 404:
                raise
        if cluster["spec"]["headGroupSpec"]["template"]["spec"].get("serviceAccountName"):
            message = (
                f"Failed to reconcile RayCluster {where(cluster)}. If users specify"
                " ServiceAccountName for the head Pod, they need to create a ServiceAccount"
                f" themselves. However, ServiceAccount {name} is not found. Please create one."
                " See the PR description of https://github.com/ray-project/kuberay/pull/1128 for"
                " more details."
            )
            await self._warn(cluster, "AutoscalerServiceAccountNotFound", message)
            raise ReconcileError(f'ServiceAccount "{name}" not found')
        await self._create_access(cluster, path, access.account(cluster), "service account")

    async def _autoscaler_role(self, cluster: Obj) -> None:
        if not rules.autoscaling(cluster["spec"]):
            return
        for plural, what, body in (
            ("roles", "role", access.role(cluster)),
            ("rolebindings", "role binding", access.binding(cluster)),
        ):
            path = f"{access.RBAC}/namespaces/{cluster['metadata']['namespace']}/{plural}"
            if not await self._exists(f"{path}/{body['metadata']['name']}"):
                await self._create_access(cluster, path, body, what)

    async def _create_access(self, cluster: Obj, path: str, body: Obj, what: str) -> None:
        await self._api.create(path, body)
        reason = "Created" + what.title().replace(" ", "")
        message = f"Created {what} {cluster['metadata']['namespace']}/{body['metadata']['name']}"
        await self._report(cluster, reason, message, "Create")

    async def _secret(self, cluster: Obj) -> None:
        options = cluster["spec"].get("authOptions") or {}
        if options.get("mode", "disabled") == "disabled":
            return
        if options.get("enableK8sTokenAuth") or options.get("secretName"):
            return
        secret = pods_of.token_secret(cluster, b64encode(secrets.token_bytes(32)).decode())
        path = f"/api/v1/namespaces/{cluster['metadata']['namespace']}/secrets"
        if not await self._exists(f"{path}/{secret['metadata']['name']}"):
            await self._api.create(path, secret)

    async def _exists(self, path: str) -> bool:
        try:
            await self._api.get(path)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def _service(self, cluster: Obj) -> None:
        if self._find_service(cluster) is not None:
            return
        service = pods_of.head_service(cluster)
        namespace = cluster["metadata"]["namespace"]
        made = await self._api.create(f"/api/v1/namespaces/{namespace}/services", service)
        self._services.put(made)
        await self._report(cluster, "CreatedService", f"Created service {where(made)}", "Create")

    def _find_service(self, cluster: Obj) -> Obj | None:
        namespace = cluster["metadata"]["namespace"]
        return self._services.get(namespace, names.service_name(cluster))

    async def _make_pods(self, cluster: Obj) -> None:
        suspended = status_of.suspend_state(cluster.get("status") or {})
        if suspended == status_of.SUSPENDING:
            await self._delete_all(self._pods_of(cluster))
            message = f"Deleted Pods for RayCluster {where(cluster)} due to suspension"
            await self._report(cluster, "DeletedPod", message, "Delete")
            return
        if suspended == status_of.SUSPENDED or cluster["spec"].get("suspend"):
            return
        if self._must_recreate(cluster):
            await self._delete_all(self._pods_of(cluster))
            message = (
                f"Deleted all Pods for RayCluster {where(cluster)} due to spec change with"
                " Recreate upgradeStrategy"
            )
            await self._report(cluster, "DeletedPod", message, "Delete")
            return
        await self._make_head(cluster)
        for group in cluster["spec"].get("workerGroupSpecs") or []:
            await self._make_workers(cluster, group)

    def _must_recreate(self, cluster: Obj) -> bool:
        head = status_of.head_pod(self._pods_of(cluster))
        strategy = (cluster["spec"].get("upgradeStrategy") or {}).get("type")
        if strategy != "Recreate" or head is None:
            return False
        made_for = head["metadata"]["annotations"].get("ray.io/upgrade-strategy-recreate-hash")
        return bool(made_for != pods_of.spec_hash(cluster["spec"]))

    async def _make_head(self, cluster: Obj) -> None:
        head = status_of.head_pod(self._pods_of(cluster))
        if head is None:
            await self._create(cluster, pods_of.head_pod(cluster), kind="head")
        elif (reason := must_go(head)) and not is_leaving(head):
            await self._delete(head)
            await self._report(
                cluster, "DeletedHeadPod", f"Deleted head Pod {ended(head)}", "Delete"
            )
            raise ReconcileError(reason)

    async def _make_workers(self, cluster: Obj, group: Obj) -> None:
        pods = self._pods_of(cluster, group["groupName"])
        if group.get("suspend"):
            await self._delete_all(pods)
            return
        ill = [pod for pod in pods if must_go(pod) and not is_leaving(pod)]
        for pod in ill:
            await self._delete(pod)
            message = f"Deleted worker Pod {ended(pod)}"
            await self._report(cluster, "DeletedWorkerPod", message, "Delete")
        if ill:
            raise ReconcileError(f"delete {len(ill)} unhealthy worker Pods")
        chosen = set((group.get("scaleStrategy") or {}).get("workersToDelete") or [])
        for pod in [pod for pod in pods if pod["metadata"]["name"] in chosen]:
            if is_leaving(pod):
                continue
            await self._delete(pod)
            await self._report(cluster, "DeletedWorkerPod", f"Deleted pod {where(pod)}", "Delete")
        left = [pod for pod in pods if pod["metadata"]["name"] not in chosen]
        missing = status_of.desired_replicas(group) - len(left)
        if missing > 0:
            await self._add_workers(cluster, group, left, missing)
        elif missing < 0 and not rules.autoscaling(cluster["spec"]):
            for pod in left[:-missing]:
                if is_leaving(pod):
                    continue
                await self._delete(pod)
                message = f"Deleted Pod {where(pod)}"
                await self._report(cluster, "DeletedWorkerPod", message, "Delete")

    async def _add_workers(self, cluster: Obj, group: Obj, pods: list[Obj], missing: int) -> None:
        hosts = group.get("numOfHosts", 1)
        label = "ray.io/worker-group-replica-index"
        taken = [int(pod["metadata"]["labels"].get(label, 0)) for pod in pods]
        index = 0
        while missing > 0:
            free = hosts - taken.count(index)
            replica = f"{group['groupName']}-{index}"
            for host in range(hosts - free, min(hosts, hosts - free + missing)):
                pod = pods_of.worker_pod(cluster, group, index=index, replica=replica, host=host)
                await self._create(cluster, pod, kind="worker")
                missing -= 1
            index += 1

    async def _create(self, cluster: Obj, pod: Obj, *, kind: str) -> None:
        namespace = cluster["metadata"]["namespace"]
        name = kind.capitalize()
        try:
            made = await self._api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        except ApiError as error:
            what = f"{namespace}/" if kind == "head" else f"for the cluster {where(cluster)}"
            message = f"Failed to create {kind} Pod {what}, {error}"
            await self._warn(cluster, f"FailedToCreate{name}Pod", message, "Create")
            reason = f"FailedCreate{name}Pod"
            raise ReconcileError(f"{reason}\n{error}", reason=reason) from error
        self._pods.put(made)
        await self._report(
            cluster, f"Created{name}Pod", f"Created {kind} Pod {where(made)}", "Create"
        )

    async def _delete_all(self, pods: list[Obj]) -> None:
        for pod in pods:
            if not is_leaving(pod):
                await self._delete(pod)

    async def _delete(self, pod: Obj) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        left = await self._api.delete(path, at_once=False)
        # On a node with a kubelet it stays until its containers have ended.
        if left.get("metadata", {}).get("deletionTimestamp"):
            self._pods.put(left)
        else:
            self._pods.drop(pod)

    def _pods_of(self, cluster: Obj, group: str | None = None) -> list[Obj]:
        meta = cluster["metadata"]
        found = [
            pod
            for (namespace, _), pod in self._pods.items.items()
            if namespace == meta["namespace"]
            and pod["metadata"].get("labels", {}).get("ray.io/cluster") == meta["name"]
            and group in (None, pod["metadata"]["labels"].get("ray.io/group"))
        ]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    async def _guard_redis(self, cluster: Obj) -> float | None:
        """None: go on as with any cluster; 0: done for now; else seconds until the next pass."""
        meta = cluster["metadata"]
        if not meta.get("deletionTimestamp"):
            if FINALIZER in (meta.get("finalizers") or []):
                return None
            changed = _as_go_writes(cluster)
            changed["metadata"]["finalizers"] = [*(meta.get("finalizers") or []), FINALIZER]
            self._clusters.put(await self._api.replace(_path(cluster), changed))
            return self._requeue_s
        if FINALIZER not in (meta.get("finalizers") or []):
            return 0.0
        pods = self._pods_of(cluster)
        await self._delete_all(pods)
        if status_of.head_pod(pods) is not None:
            return 5 * self._requeue_s
        return await self._clean_redis(cluster)

    async def _clean_redis(self, cluster: Obj) -> float:
        namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        job_name = f"{name}-redis-cleanup"
        try:
            job = await self._api.get(f"{path}/{job_name}")
        except ApiError as error:
            if error.code != 404:
                raise
            await self._create_cleanup(cluster, path, job_name)
            return self._requeue_s
        results = {"Complete", "Failed"} & {
            condition["type"] for condition in (job.get("status") or {}).get("conditions") or []
        }
        if not results:
            return self._requeue_s
        await self._api.merge(_path(cluster), {"metadata": {"finalizers": None}})
        return 0.0

    async def _create_cleanup(self, cluster: Obj, path: str, name: str) -> None:
        pod = pods_of.head_pod(cluster)
        labels = pod["metadata"]["labels"] | {"ray.io/node-type": "redis-cleanup"}
        meta = {"name": name, "labels": labels, "ownerReferences": [names.owner(cluster)]}
        spec = {**pod["spec"], "restartPolicy": "Never"}
        template = {"metadata": {"labels": labels}, "spec": spec}
        job = {"spec": {"backoffLimit": 0, "activeDeadlineSeconds": 300, "template": template}}
        await self._api.create(
            path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, **job}
        )
        scope = f"{cluster['metadata']['namespace']}/{name}"
        await self._report(
            cluster, "CreatedRedisCleanupJob", f"Created Redis cleanup Job {scope}", "Create"
        )

    async def _report(self, cluster: Obj, reason: str, message: str, action: str) -> None:
        await self._events.event(cluster, reason, message, action=action)

    async def _warn(
        self, cluster: Obj, reason: str, message: str, action: str = "Validate"
    ) -> None:
        await self._events.event(cluster, reason, message, type="Warning", action=action)


def _as_go_writes(value: Any, *, in_resources: bool = False) -> Any:
    """The object as a Go client writes it back whole: quantities become text.

    So the mere finalizer of the operator raises the generation of a spec with a number in it.
    """
    if isinstance(value, dict):
        return {
            k: _as_go_writes(v, in_resources=in_resources or k in ("limits", "requests"))
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_as_go_writes(item) for item in value]
    return str(value) if in_resources and isinstance(value, int | float) else deepcopy(value)


def _path(cluster: Obj) -> str:
    meta = cluster["metadata"]
    return f"{RAYCLUSTERS}/namespaces/{meta['namespace']}/rayclusters/{meta['name']}"
