"""A cluster of pods with TLS: real Ray processes, certificates as the init containers make them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import user_in
from tests.k8s.support.user_namespace import of_this_process
from tests.providers.handshake import lets_in

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
TEMPLATE = """\
provider: kuberay
image: rayproject/ray:2.60.0-py311-cpu
tls: {secret: team-ca}
network_policy: true
warm: {enabled: false}
head: {cpus: 1, memory: 3Gi, num_cpus: 0}
worker_groups: [{name: cpu, cpus: 1, memory: 2Gi}]
"""
# The head has no CPUs for it, so it crosses to the other pod and back.
SCRIPT = """\
import ray
ray.init()
print("answer", ray.get(ray.remote(lambda: 6 * 7).remote()))
"""
AUTHORITY = "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n"


def issue(folder: Path, name: str, *, by: str, extensions: str) -> None:
    """Write `name.key` and `name.crt`, signed by another one of the folder."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subject = ("-subj", f"/CN={name}", "-keyout", f"{name}.key")
    if by == name:
        openssl("req", "-x509", *new, *subject, "-out", f"{name}.crt")
        return
    openssl("req", *new, *subject, "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text(extensions)
    signer = ("-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-set_serial", str(len(name)))
    more = ("-extfile", f"{name}.ext", "-out", f"{name}.crt")
    openssl("x509", "-req", "-in", f"{name}.csr", *signer, *more)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """An organization's root, a team's authority below it, and one certificate of each."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    issue(folder, "root", by="root", extensions=AUTHORITY)
    issue(folder, "team", by="root", extensions=AUTHORITY)
    issue(folder, "member", by="team", extensions="subjectAltName=DNS:member\n")
    issue(folder, "stranger", by="root", extensions="subjectAltName=DNS:stranger\n")
    return folder


@pytest.fixture
def farm(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Farm]:
    templates = user_in(standin, monkeypatch, namespace=namespace, folder=tmp_path)
    monkeypatch.setenv("LLMOPS_HOME", str(of_this_process(tmp_path) / "home"))
    (templates / "sealed.yaml").write_text(TEMPLATE)
    with Farm(standin, mode="real", grace_s=1) as running:
        yield running
    assert running.processes() == []


def test_pods_speak_tls_and_let_in_who_has_a_certificate_of_their_authority(
    farm: Farm, namespace: str, certificates: Path, tmp_path: Path
):
    team, root = certificates / "team.crt", certificates / "root.crt"
    data = {
        "tls.crt": team.read_text() + root.read_text(),
        "tls.key": (certificates / "team.key").read_text(),
    }
    secret = {"metadata": {"name": "team-ca"}, "type": "kubernetes.io/tls", "stringData": data}
    farm.http.post(f"/api/v1/namespaces/{namespace}/secrets", json=secret).raise_for_status()
    cluster = llmops.up("sealed")
    cluster.wait(timeout_s=360)
    (tmp_path / "workspace").mkdir()
    script = tmp_path / "workspace" / "seven.py"
    script.write_text(SCRIPT)
    run = cluster.submit(script)
    assert run.wait(360) == "SUCCEEDED", run.logs()
    assert "answer 42" in run.logs()

    for pod in farm.pods(namespace):
        ports = json.loads(pod["metadata"]["annotations"]["standin/ports"])
        if pod["metadata"]["labels"]["ray.io/node-type"] == "head":
            host, _, port = ports["6379"].rpartition(":")
    gcs = (host, int(port))

    def lets(name: str) -> bool:
        mine = (certificates / f"{name}.crt", certificates / f"{name}.key")
        return lets_in(gcs, authority=team, certificate=mine[0], key=mine[1])

    assert lets("member")
    assert not lets("stranger"), "an authority of the organization is not that of the cluster"
    assert not lets_in(gcs, authority=team), "nothing without a certificate"
    assert not lets_in(gcs, authority=None), "nothing without TLS"
    cluster.delete()
