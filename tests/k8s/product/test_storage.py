"""Runs of a cluster whose template has `storage.runs`: a bucket of a real S3 server, and a volume.

Real are the store's server, Ray in the pods, the training and the scoring. The store's credentials
come from a Secret; the client's run folder is one that no pod sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import llmops_kernel as llmops
from llmops_kernel.export.weights import local_result
from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.store.export_job import ModelSource
from tests.k8s.product.test_end_to_end import ROOT, config
from tests.k8s.product.test_spot import claim
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import user_in
from tests.tables.servers import start
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
__all__ = ["config"]
ADAPTER = {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "README.md"}
SCORE = {
    "name": "again",
    "model": {"run": "last"},
    "input": {"path": "rows.jsonl"},
    "prompt": {"template": "{text}"},
    "sampling": {"max_tokens": 4},
    "engine": {"type": "transformers"},
}


@pytest.fixture
def farm(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Farm]:
    user_in(standin, monkeypatch, namespace=namespace, folder=tmp_path)
    with Farm(standin, mode="real", grace_s=1) as running:
        yield running
    assert running.processes() == []


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[start.Store]:
    folder = tmp_path / "s3"
    folder.mkdir()
    with start.s3(folder) as running:
        yield running


def template(folder: Path, **sections: Any) -> None:
    """Write the template `kept`: that for any Kubernetes, with the sections given here."""
    text = yaml.safe_load((ROOT / "cluster_templates" / "kind-cpu.yaml").read_text())
    text |= {"name": "kept", **sections}
    # One pod: in the farm all pods of a cluster have one folder of Ray's session, and the agent of
    # a second pod unpacks the workspace again while the driver of a scoring is in it.
    text["head"] |= {"cpus": 2, "num_cpus": 2}
    text["worker_groups"][0]["replicas"] = 0
    (folder / "cluster_templates" / "kept.yaml").write_text(yaml.safe_dump(text))


def test_a_bucket_has_what_the_cluster_made_when_the_cluster_is_gone(
    farm: Farm,
    namespace: str,
    config: Path,
    s3: start.Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = {"metadata": {"name": "team-store"}, "stringData": s3.env}
    farm.http.post(f"/api/v1/namespaces/{namespace}/secrets", json=secret).raise_for_status()
    storage = {"runs": "s3://bucket/team/llmops"}
    template(tmp_path, storage=storage, secrets=[{"secret": "team-store"}])
    cluster = llmops.up("kept").wait(timeout_s=400)
    trained = cluster.submit(config)
    assert trained.wait(400, raise_on_failure=False) == "SUCCEEDED", trained.logs()[-3000:]
    kept = f"team/llmops/{trained.id}"
    assert set(s3.names(f"{kept}/output")) > ADAPTER
    assert "checkpoint-6/llmops-complete" in s3.names(f"{kept}/checkpoints")
    assert {"1-driver.jsonl", "1-worker-1.jsonl"} <= set(s3.names(f"{kept}/journal"))
    # A worker reads the adapter from the bucket, and writes the rows there.
    path = config.with_name("again.score.yaml")
    path.write_text(json.dumps(SCORE))
    scored = cluster.score(path)
    assert scored.wait(400, raise_on_failure=False) == "SUCCEEDED", scored.logs()[-3000:]
    assert scored.output == f"s3://bucket/team/llmops/{scored.id}/output"

    cluster.delete()
    until(lambda: not farm.pods(namespace) and not farm.processes())
    # A small result has come home; all is in the bucket, for who may read it.
    assert trained.output == trained.folder.output
    assert {file.name for file in trained.folder.output.iterdir()} > ADAPTER
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    url = f"s3://bucket/{kept}/output"
    result = local_result(ModelSource(what="adapter", location=url), tmp_path / "scratch")
    for file in trained.folder.output.iterdir():
        assert (result / file.name).read_bytes() == file.read_bytes()
    assert ScoredOutput(str(scored.output), name=scored.id).num_rows == 64


@pytest.mark.nightly
def test_a_volume_has_what_the_cluster_made_when_the_cluster_is_gone(
    farm: Farm,
    standin: StandIn,
    namespace: str,
    config: Path,
    tmp_path: Path,
) -> None:
    standin.put(claim(namespace))
    volume = {"mount": "/mnt/team", "claim": "team"}
    storage = {"runs": "/mnt/team/llmops", "volumes": [volume]}
    template(tmp_path, storage=storage)
    cluster = llmops.up("kept").wait(timeout_s=400)
    run = cluster.submit(config)
    assert run.wait(400, raise_on_failure=False) == "SUCCEEDED", run.logs()[-3000:]
    cluster.delete()
    until(lambda: not farm.pods(namespace) and not farm.processes())
    # The farm's volumes are folders of this machine: so this client has the storage, too, and
    # copies nothing. One that has not is in tests/jobs/outputs.
    kept = Path(str(run.output)).parent
    assert (kept.name, kept.parent.name) == (run.id, "llmops")
    assert kept.is_relative_to(farm.folder)
    assert {file.name for file in (kept / "output").iterdir()} > ADAPTER
    assert (kept / "checkpoints" / "checkpoint-6" / "llmops-complete").is_file()
    assert (kept / "journal" / "1-driver.jsonl").is_file()
    assert not run.folder.output.exists()
