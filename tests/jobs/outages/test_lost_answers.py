"""A job whose request reached Ray is submitted, also if the API server before it is killed then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import GET_TRIES, JobsClient
from llmops_kernel.providers.protocol import Connection
from tests.jobs.outages.cut_server import CutHandler, serving, url_of

JOB = {"submission_id": "job-1", "status": "PENDING"}


class Ray(ThreadingHTTPServer):
    """Takes a job and cuts the line; then gives the answers of a server that starts, in turn."""

    daemon_threads = True

    def __init__(self, *answers: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.posts = 0


class Handler(CutHandler):
    server: Ray

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts += 1
        self.cut()

    def do_GET(self) -> None:
        code = self.server.answers.pop(0) if self.server.answers else 200
        if not code:
            self.cut()
            return
        body = json.dumps(JOB if code == 200 else {"message": "does not exist"}).encode()
        self.answer(code, body)


@pytest.fixture
def ray() -> Iterator[Ray]:
    with serving(Ray()) as server:
        yield server


def submit(ray: Ray) -> None:
    with JobsClient(Connection(dashboard_url=url_of(ray))) as client:
        client.submit(entrypoint="true", submission_id="job-1", runtime_env={}, metadata={})


def test_a_job_that_ray_has_was_submitted_once(ray: Ray) -> None:
    # The line is cut a few times, then the server that starts refuses.
    ray.answers = [0] * GET_TRIES + [503, 403]
    submit(ray)
    assert (ray.posts, ray.answers) == (1, [])


def test_a_job_that_ray_has_not_is_sent_again(ray: Ray) -> None:
    ray.answers = [503, 404, 404]
    with pytest.raises(ClusterUnreachableError):
        submit(ray)
    assert (ray.posts, ray.answers) == (2, [])
