"""Outputs that only a cluster's pods have: said at submit, and before the pods are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.jobs.history import about_outputs
from llmops_kernel.metrics.events import EndEvent, OutputEvent
from llmops_kernel.providers.protocol import ClusterAction
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.conftest import Cloud

FILES = [{"name": "a", "size_bytes": 1, "sha256": "0" * 64}]
Ran = Callable[..., None]


@pytest.fixture
def ran(cloud: Cloud) -> Ran:
    """Puts a run of the cluster that has ended into the store."""

    def put(run_id: str, *, age_s: float = 0.0, **fields: Any) -> None:
        store, since_s = RunStore(), time.time() - age_s
        details = {"name": "n", "created_s": since_s, "cluster": "one", "provider": "kuberay"}
        record = RunRecord.model_validate({"run_id": run_id, "config": {}, **details})
        folder = store.create(record, config_yaml="")
        attempt = {"number": 1, "submission_id": f"{run_id}-1", "cluster": "one"}
        sent = {"dashboard_url": "", "submitted_s": since_s}
        store.add_attempt(run_id, Attempt.model_validate({**attempt, **sent}))
        writer = JournalWriter([folder.journal], stream="1-worker-0", attempt=1)
        output = {"path": "/tmp/x/output", "what": "model", "size_bytes": 14 * 2**30}
        writer.emit(OutputEvent.model_validate({**output, **fields}))
        writer.emit(EndEvent(state="SUCCEEDED"))
        writer.close()

    return put


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        ({}, "Outputs of up to 256 MiB are copied to the run folder; others are lost when"),
        ({"copy_outputs": "1Gi"}, "Outputs of up to 1.00 GiB are copied"),
        ({"copy_outputs": 0}, "No output is copied to the run folder; others are lost when"),
        ({"runs": "s3://bucket/runs"}, ""),
    ],
)
def test_what_becomes_of_outputs_is_said_of_the_cluster_as_it_was_applied(
    cloud: Cloud, storage: dict[str, Any], says: str
) -> None:
    cloud.provider.up(cloud.template(storage=storage), wait=False)
    said = about_outputs(cloud.provider, "one")
    assert says in said
    assert bool(said) == bool(says)
    assert "storage.runs" in said or not says


def test_the_autoscaler_removes_pods_with_their_outputs(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(autoscaling=True), wait=False)
    assert "or its autoscaler removes their pod" in about_outputs(cloud.provider, "one")


@pytest.mark.parametrize("size", ["-1", "5Gi", "x"])
def test_a_limit_that_nothing_can_copy_is_refused(cloud: Cloud, size: str) -> None:
    with pytest.raises(ValueError, match="copy_outputs"):
        KubeRayTemplate.model_validate({"name": "one", "storage": {"copy_outputs": size}})


def test_an_output_without_another_copy_is_named_before_its_pods_are_deleted(
    cloud: Cloud, ran: Ran
) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    ran("stored", path="s3://bucket/model")
    ran("small", place="node", files=FILES)
    ran("earlier", place="node", age_s=7200.0)
    cluster = Cluster("one", provider=cloud.provider)
    assert "only copy" not in str(cluster.preview("delete"))
    ran("large", place="node")
    line = "the only copy of the model of run large (14.0 GiB)"
    for action in (ClusterAction.DELETE, ClusterAction.SUSPEND):
        preview = cluster.preview(action)
        assert [stop for stop in preview.stops if "copy" in stop] == [line]
        assert preview.needs_confirmation
    assert "copy" not in str(cluster.preview(ClusterAction.SCALE).stops)
