"""A mirror reads on as soon as the line is there again, however long it was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.mirror import JournalMirror
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.store.journal.journal import read_lines
from tests.jobs.outages.cut_server import CutHandler, serving, url_of

NAME = "llmops/run-1/1-worker-1.jsonl"
NODES = {"data": {"result": {"result": [{"node_id": "a", "state": "ALIVE"}]}}}
FILES = {"data": {"result": {"internal": [NAME]}}}


class Ray(ThreadingHTTPServer):
    """One node with one file of a journal."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines, self.is_cut = 0, False

    def answer(self, path: str) -> bytes:
        if path.startswith("/api/v0/logs/file"):
            event = {"kind": "phase", "name": "data", "state": "begin", "stream": "1-worker-1"}
            lines = [json.dumps({**event, "seq": seq + 1}) for seq in range(self.lines)]
            return "".join(f"{line}\n" for line in lines).encode()
        return json.dumps(NODES if path.startswith("/api/v0/nodes") else FILES).encode()


class Handler(CutHandler):
    server: Ray

    def do_GET(self) -> None:
        if self.server.is_cut:
            self.cut()
            return
        self.answer(200, self.server.answer(self.path))


@pytest.fixture
def ray() -> Iterator[Ray]:
    with serving(Ray()) as server:
        yield server


def test_the_first_round_after_a_cut_reads_what_was_missed(ray: Ray, tmp_path: Path) -> None:
    connection = Connection(dashboard_url=url_of(ray))
    ray.lines = 1
    with JournalMirror(connection, run_id="run-1", journal=tmp_path) as mirror:
        mirror.sync()
        ray.lines, ray.is_cut = 2, True
        failed = 0
        while failed < 5:
            try:
                mirror.sync()
            except ClusterUnreachableError:
                failed += 1
        ray.lines, ray.is_cut = 3, False
        mirror.sync()
    data = (tmp_path / "1-worker-1.jsonl").read_bytes()
    assert [event.seq for event in read_lines(data)] == [1, 2, 3]
