"""A real Ray head behind the stand-in of a Kubernetes API server: all of it over the tunnel."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.tunnel import close_routes, open_route
from llmops_kernel.providers.protocol import ClusterState, Connection
from llmops_kernel.store.journal.journal import read_lines
from llmops_kernel.store.store import RunStore
from tests.jobs.conftest import MakeRun, ended, start_job
from tests.jobs.fake_provider import FakeProvider
from tests.k8s.conftest import namespace, standin
from tests.k8s.standin.process import StandIn
from tests.messages import missing
from tests.providers.kuberay.head_objects import drop_head, put_cluster, put_head
from tests.waiting import until

pytestmark = pytest.mark.ray
__all__ = ["namespace", "standin"]
WAYS = ["service-proxy", "url"]


@pytest.fixture
def kubeconfig(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    path = standin.kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def port(connection: Connection) -> int:
    return urlsplit(connection.dashboard_url).port or 0


@pytest.fixture(params=WAYS)
def tunnel(
    request: pytest.FixtureRequest,
    standin: StandIn,
    namespace: str,
    kubeconfig: Path,
    connection: Connection,
    port: int,
) -> Iterator[Connection]:
    raycluster = put_cluster(standin, namespace, port=port, token=connection.token)
    access = Access(way=request.param, url=connection.dashboard_url)
    yield open_route(Kube(), raycluster, access)
    close_routes()


def new_id() -> str:
    return f"tunnel-{secrets.token_hex(3)}"


def steps(events: list[object]) -> list[int]:
    return [event.step for event in events if isinstance(event, StepEvent)]


def lines_of(store: RunStore, run_id: str) -> list[int]:
    path = store.folder(run_id).journal / "1-worker-0.jsonl"
    return [event.seq for event in read_lines(path.read_bytes())]


def follow(follower: Follower, got: list[int]) -> None:
    for batch in follower.follow(interval_s=0.1, timeout_s=150):
        got += steps(list(batch))


def followed_through(
    store: RunStore, run_id: str, tunnel: Connection, trouble, *, num_steps: int, interval_s: float
) -> list[int]:
    """What a follower saw of a job, with `trouble` in the middle of it."""
    got: list[int] = []
    follower = Follower(store, run_id, connection=lambda: tunnel)
    thread = threading.Thread(target=follow, args=(follower, got))
    with JobsClient(tunnel) as client:
        start_job(client, run_id, num_steps=num_steps, interval_s=interval_s)
        thread.start()
        until(lambda: len(got) >= 10)
        trouble()
    thread.join()
    follower.close()
    assert follower.is_over
    return got


def test_a_job_goes_and_comes_through_the_tunnel(tunnel: Connection) -> None:
    job_id = new_id()
    with JobsClient(tunnel, cluster="lab") as client:
        client.submit(
            entrypoint="for i in 1 2 3; do echo line $i; done",
            submission_id=job_id,
            runtime_env={},
            metadata={},
        )
        until(lambda: ended(client, job_id))
        job = client.get(job_id)
        assert job is not None
        assert job.status == "SUCCEEDED"
        assert "line 1\nline 2\nline 3\n" in client.driver_log(job)
        assert client.list()[0].submission_id == job_id
        assert client.get("never-was") is None
        client.delete(job_id)


@pytest.mark.parametrize("tunnel", WAYS[:1], indirect=True)
def test_no_line_is_lost_and_no_run_declared_dead_while_the_api_server_is_away(
    store: RunStore, make_run: MakeRun, tunnel: Connection, standin: StandIn
) -> None:
    run_id = make_run(new_id(), provider="kuberay")
    ends = []

    def away() -> None:
        standin.fault("away", seconds=8)
        watcher = Observer(store, run_id, provider=FakeProvider(connection=tunnel), grace_s=0.1)
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            ends.append(watcher.check())
            time.sleep(1)

    got = followed_through(store, run_id, tunnel, away, num_steps=150, interval_s=0.1)
    assert set(ends) == {None}
    assert got == list(range(1, 151))
    assert lines_of(store, run_id) == got
    assert store.view(run_id).state == "SUCCEEDED"


def test_a_follower_that_is_killed_is_followed_by_another(
    store: RunStore, make_run: MakeRun, tunnel: Connection
) -> None:
    """As a kernel is, in the middle of a run: the next one reads what is missing."""
    run_id = make_run(new_id(), provider="kuberay")
    with JobsClient(tunnel) as client:
        start_job(client, run_id, num_steps=80, interval_s=0.05)
    first = Follower(store, run_id, connection=tunnel)
    until(lambda: bool(first.poll()) or len(first.view.steps) > 3)
    first.close()
    time.sleep(1.0)
    got: list[int] = []
    second = Follower(store, run_id, connection=tunnel)
    follow(second, got)
    second.close()
    assert got == list(range(1, 81))
    assert lines_of(store, run_id) == got


@pytest.mark.parametrize("tunnel", WAYS[:1], indirect=True)
def test_a_head_that_is_recreated_does_not_know_the_run_and_its_lines_stay(
    store: RunStore,
    make_run: MakeRun,
    tunnel: Connection,
    standin: StandIn,
    namespace: str,
    port: int,
) -> None:
    run_id = make_run(new_id(), provider="kuberay")
    with JobsClient(tunnel) as client:
        job_id = start_job(client, run_id, num_steps=10, how="hang")
        follower = Follower(store, run_id, connection=tunnel)
        until(lambda: follower.poll() is not None and len(follower.view.steps) == 10)
        provider = FakeProvider(connection=tunnel)
        watcher = Observer(store, run_id, provider=provider, grace_s=0.1)
        drop_head(standin, namespace)
        assert watcher.check() is None, "no endpoints: that says nothing of the job"
        with pytest.raises(ClusterUnreachableError, match="no endpoints"):
            client.get(job_id)
        put_head(standin, namespace, port=port)
        assert watcher.check() is None
        provider.state, provider.head_runs = ClusterState.STOPPED, True
        assert watcher.check() is None, "its head is there and runs the job"
        client.stop(job_id)
        until(lambda: ended(client, job_id))
        client.delete(job_id)
        provider.state = ClusterState.READY
        end = watcher.check()
    follower.close()
    assert end is not None
    assert missing(end.message, "restarted", "step 10", "journal") == []
    assert [event.step for event in store.view(run_id).steps] == list(range(1, 11))


@pytest.mark.parametrize("how", ["suspended", "deleted"])
def test_after_the_cluster_is_gone_the_run_opens_with_all_that_was_read(
    store: RunStore,
    make_run: MakeRun,
    standin: StandIn,
    namespace: str,
    kubeconfig: Path,
    connection: Connection,
    port: int,
    how: str,
) -> None:
    raycluster = put_cluster(standin, namespace, port=port, token=connection.token)
    tunnel = open_route(Kube(), raycluster)
    run_id = make_run(new_id(), provider="kuberay")
    with JobsClient(tunnel) as client:
        job_id = start_job(client, run_id, num_steps=12, how="hang")
        with Follower(store, run_id, connection=tunnel) as follower:
            until(lambda: follower.poll() is not None and len(follower.view.steps) == 12)
        client.stop(job_id)
    drop_head(standin, namespace)
    state = ClusterState.STOPPED if how == "suspended" else None
    provider = FakeProvider(connection=tunnel, state=state)
    end = Observer(store, run_id, provider=provider, grace_s=0.1).check()
    assert end is not None
    reported = "stopped" if how == "suspended" else "no longer exists"
    assert missing(end.message, reported, "step 12", "journal") == []
    again = Follower(RunStore(), run_id, connection=None)
    again.poll()
    assert again.is_over
    assert [event.step for event in again.view.steps] == list(range(1, 13))
    close_routes()


def ray(*words: str, home: Path, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 40}
    command = [str(Path(sys.executable).with_name("ray")), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
    )


def test_rays_own_job_client_rides_the_tunnel(
    standin: StandIn,
    namespace: str,
    kubeconfig: Path,
    connection: Connection,
    port: int,
    tmp_path: Path,
) -> None:
    """With a token of another cluster in its environment, and followed logs over TLS."""
    put_cluster(standin, namespace, port=port, token=connection.token)
    address = f"llmops_ray://{namespace}/lab"
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "hello.py").write_text(
        "import time\nfor i in range(5):\n  print('line', i, flush=True); time.sleep(0.3)\n"
    )
    job_id = new_id()
    words = ["job", "submit", "--address", address, "--submission-id", job_id]
    made = ray(*words, "--working-dir", str(folder), "--", "python", "hello.py", home=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"'{job_id}' succeeded" in made.stdout
    assert re.findall(r"^line (\d)$", made.stdout, re.M) == ["0", "1", "2", "3", "4"]
    by_context = f"llmops_ray://standin/{namespace}/lab"
    logs = ray("job", "logs", "--address", by_context, "--follow", job_id, home=tmp_path)
    assert logs.returncode == 0, logs.stdout + logs.stderr
    assert re.findall(r"^line (\d)$", logs.stdout, re.M) == ["0", "1", "2", "3", "4"]
    listed = ray("job", "list", "--address", address, home=tmp_path)
    assert job_id in listed.stdout
    for reported in (made, logs, listed):
        assert standin.admin_token not in reported.stdout + reported.stderr
        assert str(connection.token) not in reported.stdout + reported.stderr


def test_a_local_cluster_has_such_an_address_too(connection: Connection, tmp_path: Path) -> None:
    job_id = new_id()
    words = ["job", "submit", "--address", "llmops_ray://test", "--submission-id", job_id]
    made = ray(*words, "--", "echo", "here", home=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "\nhere\n" in made.stdout
