"""What is so: read from the API server's objects, from Ray in the head's pod and from the pods'
journals, without the client and without the API server's proxy."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.soak.kubernetes.compare import RunTruth, Truth, events_in, truth_of_run
from tests.soak.kubernetes.place import CLUSTER, NAMESPACE, PODS, RAYCLUSTERS, Place

OLD_S = 5.0
"""What was written so long ago must be shown."""
_STATES = {"ready": "ready", "suspended": "stopped"}


class Pods:
    """Looks into the pods of the cluster."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._ended: dict[str, RunTruth] = {}
        data = place.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{CLUSTER}")["data"]
        token = base64.b64decode(data["auth_token"]).decode()
        self._headers = {"Authorization": f"Bearer {token}"}

    def look(self, submissions: Mapping[str, str]) -> Truth:
        """`submissions` by run."""
        status = self._place.get(f"{RAYCLUSTERS}/{CLUSTER}").get("status") or {}
        jobs = self.jobs()
        runs = {run_id: self._run(run_id, jobs.get(job)) for run_id, job in submissions.items()}
        state = _STATES.get(status.get("state", "")) if self._head_is_ready() else None
        return Truth(state, status.get("readyWorkerReplicas"), runs)

    def _run(self, run_id: str, job: str | None) -> RunTruth:
        if run_id in self._ended:
            return self._ended[run_id]
        events = [one for data in self.journal(run_id).values() for one in events_in(data)]
        old_s = time.time() - OLD_S
        found = truth_of_run(events, job, now_s=old_s)
        if any(event["kind"] == "end" and event["time_s"] < old_s for event in events):
            self._ended[run_id] = RunTruth(found.states, found.step, found.step)
        return found

    def jobs(self) -> dict[str, str]:
        """Status by submission, as Ray has it."""
        ports = json.loads(self._head()["metadata"]["annotations"]["standin/ports"])
        url = f"http://{ports['8265']}/api/jobs/"
        answer = httpx.get(url, headers=self._headers, timeout=60, trust_env=False)
        answer.raise_for_status()
        jobs: list[dict[str, Any]] = answer.json()
        return {job["submission_id"]: job["status"] for job in jobs if job["submission_id"]}

    def _head(self) -> dict[str, Any]:
        (head,) = [
            pod for pod in self._place.get(PODS)["items"] if "-head-" in pod["metadata"]["name"]
        ]
        return dict(head)

    def _head_is_ready(self) -> bool:
        """A kubelet reports a Ray that is slow to answer as not ready, and so do clients then."""
        conditions = self._head()["status"].get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def journal(self, run_id: str) -> dict[str, bytes]:
        """Its files in all pods, by name."""
        # The session of a worker is below the head's, or where its Ray finds it best.
        pods = self._place.nodes.folder / "n"
        sessions = [one for ray in ("ray", "tmp/ray") for one in pods.glob(f"*/{ray}/session_2*")]
        folders = [session / "logs" / "llmops" / run_id for session in sessions]
        files = [file for folder in folders for file in folder.glob("*.jsonl")]
        return {file.name: file.read_bytes() for file in files}
