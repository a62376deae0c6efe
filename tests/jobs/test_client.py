from __future__ import annotations

import secrets
import socket
import sys
import threading
import zipfile

import pytest

from llmops_kernel.errors import ClusterUnreachableError, SubmissionError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.protocol import Connection
from tests.jobs.conftest import ended
from tests.waiting import until

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def unique(name: str) -> str:
    return f"{name}-{secrets.token_hex(3)}"


@pytest.mark.ray
def test_a_job_is_submitted_read_listed_and_deleted(client: JobsClient):
    job_id = unique("job")
    client.submit(
        entrypoint="for i in 1 2 3 4 5; do echo line $i; done; exit 3",
        submission_id=job_id,
        runtime_env={},
        metadata={"llmops_run": "r"},
    )
    until(lambda: ended(client, job_id))
    job = client.get(job_id)
    assert job is not None
    assert (job.status, job.driver_exit_code, job.metadata) == ("FAILED", 3, {"llmops_run": "r"})
    # Ray writes a line of its own beside them, at any place.
    ours = [line for line in client.driver_log(job).splitlines() if line.startswith("line ")]
    assert ours == [f"line {number}" for number in range(1, 6)]
    assert len(client.driver_log(job, lines=2).splitlines()) == 2
    assert client.list()[0].submission_id == job_id
    # Its supervisor takes a moment to leave.
    until(lambda: client.stop(job_id) is False)

    with pytest.raises(SubmissionError, match="already exists"):
        client.submit(entrypoint="true", submission_id=job_id, runtime_env={}, metadata={})
    client.delete(job_id)
    client.delete(job_id)
    assert client.get(job_id) is None


@pytest.mark.ray
def test_a_package_is_uploaded_once_and_a_job_can_use_it(client: JobsClient, tmp_path):
    hash_ = secrets.token_hex(8)
    path = tmp_path / f"{hash_}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.py", f"print('code of {hash_}')")
        archive.writestr("big.bin", secrets.token_bytes(3_000_000))
    name = f"_ray_pkg_{hash_}.zip"
    assert not client.package_exists(name)
    assert client.upload_package(path, name=name) == path.stat().st_size
    assert client.package_exists(name)

    job_id = unique("package")
    client.submit(
        entrypoint=f"{sys.executable} hello.py",
        submission_id=job_id,
        runtime_env={"working_dir": f"gcs://{name}"},
        metadata={},
    )
    until(lambda: ended(client, job_id))
    job = client.get(job_id)
    assert job is not None
    assert f"code of {hash_}" in client.driver_log(job)


@pytest.mark.ray
def test_stop_ends_a_running_job(client: JobsClient):
    job_id = unique("stop")
    client.submit(entrypoint="sleep 600", submission_id=job_id, runtime_env={}, metadata={})
    until(lambda: (job := client.get(job_id)) is not None and job.status == "RUNNING")
    assert client.stop(job_id) is True
    until(lambda: ended(client, job_id))
    job = client.get(job_id)
    assert job is not None
    assert job.status == "STOPPED"
    assert client.stop("never-was") is False


@pytest.mark.ray
def test_a_wrong_token_is_reported_and_never_shown(connection: Connection):
    wrong = connection.model_copy(update={"token": "a-wrong-token-0123456789abcdef0123"})
    client = JobsClient(wrong, cluster="local")
    with pytest.raises(ClusterUnreachableError, match="rejected the token") as caught:
        client.list()
    assert "a-wrong-token" not in f"{caught.value!s}{caught.value!r}{client!r}{wrong!r}"


def test_nobody_there_is_a_cluster_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    client = JobsClient(Connection(dashboard_url=url), cluster="local")
    with pytest.raises(ClusterUnreachableError, match=r"'local'.*does not answer") as caught:
        client.version()
    assert "llmops up" in caught.value.remedy


def test_a_reading_request_survives_a_reset_connection():
    """The first connection is closed without an answer, as by a port-forward that restarts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen: list[bytes] = []

        def serve() -> None:
            server.accept()[0].close()
            connection, _ = server.accept()
            seen.append(connection.recv(65536))
            connection.sendall(OK)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = JobsClient(Connection(dashboard_url=url, token="secret"))
        assert client.version() == {}
    request = seen[0].decode().lower()
    assert "authorization: bearer secret" in request
    assert "user-agent: llmops-kernel" in request
    assert "mozilla" not in request
