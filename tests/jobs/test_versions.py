"""A cluster with another Ray release is refused before anything is written."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llmops_kernel.errors import SubmissionError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.submit import Submission, submit_run
from llmops_kernel.jobs.upload import check_ray_version, is_supported
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Connection
from llmops_kernel.store.store import RunStore
from llmops_kernel.version import SUPPORTED_RAY
from tests.configs import training_config_from_dict
from tests.messages import missing


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.60.0", True),
        ("2.60.3", True),
        ("2.60.0.dev0", True),
        ("2.59.9", False),
        ("2.61.0", False),
        ("3.0.0.dev0", False),
        ("", True),
        ("nightly", True),
    ],
)
def test_the_minor_release_counts(version: str, expected: bool) -> None:
    assert is_supported(version) is expected


def test_a_cluster_that_reports_no_version_is_not_refused() -> None:
    check_ray_version({"session_name": "session_1"})


def test_the_error_names_both_versions_and_what_to_do() -> None:
    with pytest.raises(SubmissionError) as caught:
        check_ray_version({"ray_version": "2.52.1"})
    assert missing(caught.value.message, "2.52.1", SUPPORTED_RAY) == []
    assert f"ray_version: {SUPPORTED_RAY}" in caught.value.remedy


def test_the_supported_release_is_the_one_that_the_package_pins() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    pins = {one for one in [*project["dependencies"], *extras] if one.startswith("ray[")}
    assert {pin.partition("==")[2] for pin in pins} == {SUPPORTED_RAY}


class OldDashboard(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"ray_version": "2.52.1"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def old_cluster() -> Iterator[Connection]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OldDashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Connection(dashboard_url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_nothing_is_written_for_a_cluster_with_another_ray(
    store: RunStore, tmp_path: Path, old_cluster: Connection
) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "rows.jsonl").write_text('{"text": "a row"}\n')
    config = training_config_from_dict({"model": "tiny-llama", "data": "rows.jsonl"})
    cluster = ClusterInfo(name="old", provider="local", state=ClusterState.READY)
    with (
        JobsClient(old_cluster, cluster="old") as client,
        pytest.raises(SubmissionError, match=r"runs Ray 2\.52\.1"),
    ):
        submit_run(
            Submission(kind=kind_named("train"), config=config, workspace=workspace),
            store=store,
            cluster=cluster,
            client=client,
        )
    written = [path for path in store.root.rglob("*") if path.is_file()]
    assert [path for path in written if "sqlite" not in path.name] == []
