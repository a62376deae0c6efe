"""The cluster routes and their feed, with providers that say what a test tells them to."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ClusterNotFoundError, ClusterUnreachableError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo, ClusterState
from llmops_kernel.server.cluster_feed import ClustersFeed
from llmops_kernel.server.operations import Operations
from llmops_kernel.store import paths
from tests.providers.local.test_actions import FULL, defined
from tests.server.conftest import ProviderTypes


class Provider:
    """Answers for `fast` at once, for `slow` when it is let, for `gone` with an error."""

    name = "fake"

    def __init__(self) -> None:
        self.known = ["fast", "slow", "gone"]
        self.let = threading.Event()
        self.trouble: ClusterUnreachableError | None = None
        self.asked: list[str] = []
        self.idle_s: float | None = 5.0
        self.lists = 0

    def names(self) -> tuple[str, ...]:
        if self.trouble is not None:
            raise self.trouble
        return tuple(self.known)

    def list(self) -> list[ClusterInfo]:
        self.lists += 1
        return [
            ClusterInfo(name=name, provider=self.name, state=ClusterState.STARTING)
            for name in self.known
        ]

    def get(self, name: str) -> ClusterInfo:
        self.asked.append(name)
        if name.startswith("slow"):
            self.let.wait(20)
        if name == "broken":
            raise KeyError("a bug")
        if name == "gone":
            raise ClusterUnreachableError("gone does not answer", remedy="wait")
        if name not in self.known:
            raise ClusterNotFoundError(name)
        return ClusterInfo(
            name=name, provider=self.name, state=ClusterState.READY, idle_s=self.idle_s
        )


@pytest.fixture
def provider() -> Any:
    made = Provider()
    yield made
    made.let.set()


@pytest.fixture
def operations() -> Operations:
    return Operations()


@pytest.fixture
def feed(provider: Provider, operations: Operations) -> Any:
    made = ClustersFeed(operations, providers=lambda: [provider], patience_s=0.3)  # type: ignore[list-item]
    yield made
    made.close()


def rows(feed: ClustersFeed) -> dict[str, Any]:
    feed.poll()
    frames, _ = feed.news(None, {})
    return {row["name"]: row for row in frames[0].data["clusters"]}


def test_nothing_is_reported_before_the_first_look(feed: ClustersFeed) -> None:
    assert feed.news(None, {}) == ([], None)


def test_one_slow_and_one_silent_cluster_hide_no_other(
    feed: ClustersFeed, provider: Provider
) -> None:
    began_s = time.monotonic()
    reported = rows(feed)
    assert time.monotonic() - began_s < 10
    assert reported["fast"]["info"]["state"] == "ready"
    assert reported["fast"]["stale"] == ""
    assert reported["slow"]["info"] is None
    assert reported["gone"]["info"] is None
    assert (reported["gone"]["stale"], reported["gone"]["remedy"]) == (
        "gone does not answer",
        "wait",
    )
    provider.let.set()
    while rows(feed)["slow"]["info"] is None:
        assert time.monotonic() - began_s < 60
    assert rows(feed)["slow"]["info"]["state"] == "ready"


def test_many_clusters_are_shown_as_their_list_has_them_until_each_has_answered(
    feed: ClustersFeed, provider: Provider
) -> None:
    provider.known = [f"slow-{number:02}" for number in range(40)]
    reported = rows(feed)
    assert {row["info"]["state"] for row in reported.values()} == {"starting"}
    assert {row["stale"] for row in reported.values()} == {""}
    assert rows(feed).keys() == reported.keys()
    assert provider.lists == 1
    provider.let.set()
    began_s = time.monotonic()
    while {row["info"]["state"] for row in rows(feed).values()} != {"ready"}:
        assert time.monotonic() - began_s < 60
    assert provider.lists == 1


def test_a_few_clusters_are_not_listed_first(feed: ClustersFeed, provider: Provider) -> None:
    rows(feed)
    assert provider.lists == 0


def test_a_provider_with_a_bug_hides_no_other(feed: ClustersFeed, provider: Provider) -> None:
    provider.known = ["broken", "fast"]
    reported = rows(feed)
    assert "a bug" in reported["broken"]["stale"]
    assert reported["fast"]["info"]["state"] == "ready"


def test_a_provider_in_trouble_is_reported_and_what_was_known_stays(
    feed: ClustersFeed, provider: Provider
) -> None:
    rows(feed)
    provider.trouble = ClusterUnreachableError("no route to Kubernetes", remedy="VPN?")
    with pytest.raises(ClusterUnreachableError, match="no route"):
        feed.poll()
    frames, _ = feed.news(None, {})
    reported = {row["name"]: row for row in frames[0].data["clusters"]}
    assert set(reported) == {"fast", "slow", "gone"}
    assert reported["fast"]["info"]["state"] == "ready"
    provider.trouble = None
    provider.known = []
    assert rows(feed) == {}


def test_only_changes_are_news(feed: ClustersFeed, provider: Provider) -> None:
    provider.known = ["fast"]
    feed.poll()
    first, cursor = feed.news(None, {})
    assert len(first) == 1
    time.sleep(1.1)
    provider.idle_s = 6.1  # The same moment since when, looked at later.
    feed.poll()
    assert provider.asked.count("fast") == 2
    assert feed.news(cursor, {}) == ([], cursor)
    provider.known = ["fast", "gone"]
    feed.poll()
    assert len(feed.news(cursor, {})[0]) == 1


def test_progress_does_not_make_ray_be_asked_but_an_end_does(
    feed: ClustersFeed, provider: Provider, operations: Operations
) -> None:
    provider.known = ["fast"]
    end, line = threading.Event(), threading.Event()

    def work(report: Any) -> None:
        report("Starting Ray")
        line.set()
        end.wait(60)

    started = operations.start("up", "fresh", work)
    operations.start("scale", "fast", work)
    assert line.wait(60)
    reported = rows(feed)
    assert reported["fresh"]["info"]["state"] == "starting"
    assert (reported["fresh"]["doing"], reported["fresh"]["progress"]) == ("up", "Starting Ray")
    assert reported["fresh"]["operation_id"] == started.id
    assert reported["fast"]["doing"] == "scale"
    feed.poll()
    feed.poll()
    assert provider.asked.count("fast") == 1
    end.set()
    while operations.running("up") or operations.running("scale"):
        time.sleep(0.01)
    reported = rows(feed)
    assert provider.asked.count("fast") == 2
    assert set(reported) == {"fast"}
    assert reported["fast"]["doing"] == ""


# Routes


@pytest.fixture
def root(jp_root_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Jupyter's root, with a home of its own for the clusters."""
    monkeypatch.setenv(paths.HOME_ENV_VAR, str(tmp_path / "home"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (jp_root_dir / "cluster_templates").mkdir()
    (jp_root_dir / "cluster_templates/big.yaml").write_text("num_cpus: 4\n")
    (jp_root_dir / "bad.cluster.yaml").write_text("num_cpu: 4\n")
    (elsewhere / "cluster_templates").mkdir()
    (elsewhere / "cluster_templates/far.yaml").write_text("num_cpus: 2\n")
    (tmp_path / "secret.yaml").write_text("num_cpus: 4\n")
    (jp_root_dir / "cluster_templates/link.yaml").symlink_to(tmp_path / "secret.yaml")
    return jp_root_dir


@pytest.fixture
def stopped(root: Path, tmp_path: Path) -> str:
    folder = cluster_folder(paths.home(), "lab")
    folder.create()
    folder.write(defined(tmp_path / "gone", FULL).model_copy(update={"stopped_s": 1.0}))
    return "lab"


async def asked(api: Any, path: str, code: int = 200, **kwargs: Any) -> Any:
    answer = await api(path, **kwargs)
    assert answer.code == code, answer.body
    return json.loads(answer.body)


async def ended(api: Any, operation: dict[str, Any]) -> dict[str, Any]:
    for _ in range(100):
        info: dict[str, Any] = await asked(api, f"operations/{operation['id']}")
        if info["state"] != "running":
            return info
        await asyncio.sleep(0.05)
    raise AssertionError(info)


async def test_templates_are_listed_with_their_text_and_problems(api: Any, root: Path) -> None:
    found = {item["name"]: item for item in await asked(api, "templates")}
    shipped = ["gcp-h100", "kind-cpu", "mixed", "onprem-a100", "spot"]
    assert list(found) == ["local", "bad", "big", "far", *shipped]
    assert "provider: kuberay" in found["kind-cpu"]["text"]
    assert [name for name in shipped if found[name]["problems"]] == []
    assert found["local"]["path"] is None
    assert found["local"]["text"].startswith("# Cluster template")
    assert found["big"]["path"] == "cluster_templates/big.yaml"
    assert found["far"]["path"] is None
    assert "num_cpus" in found["bad"]["problems"][0]["suggestion"]


async def test_a_list_of_clusters(api: Any, stopped: str) -> None:
    reported = await asked(api, "clusters")
    (row,) = reported["clusters"]
    assert (row["name"], row["info"]["state"]) == ("lab", "stopped")
    assert row["info"]["actions"]["resume"] == ""
    assert "resume it first" in row["info"]["actions"]["scale"]
    assert abs(reported["now_s"] - time.time()) < 60
    info = await asked(api, "clusters/lab")
    assert info["state"] == "stopped"


async def test_a_stopped_cluster_is_previewed_and_deleted(api: Any, stopped: str) -> None:
    preview = await asked(api, "clusters/lab/preview?action=delete")
    assert preview["needs_confirmation"]
    assert preview["stops"] == []
    started = await asked(api, "clusters/lab", 202, method="DELETE")
    assert (started["kind"], started["what"], started["state"]) == ("delete", "lab", "running")
    assert (await ended(api, started))["state"] == "done"
    assert LocalProvider().names() == ()
    assert (await asked(api, "clusters"))["clusters"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "word"),
    [
        ("GET", "clusters/nobody", None, 404, "nobody"),
        ("GET", "clusters/..%2f..%2fetc", None, 404, "no cluster"),
        ("GET", "clusters/lab/preview", None, 400, "action"),
        ("GET", "clusters/lab/preview?action=explode", None, 422, "suspend, resume"),
        ("GET", "clusters/lab/preview?action=suspend", None, 409, "already stopped"),
        ("POST", "clusters/lab/explode", "{}", 422, "explode"),
        ("POST", "clusters/lab/delete", "{}", 405, "DELETE"),
        ("POST", "clusters/lab/suspend", "{}", 409, "already stopped"),
        ("POST", "clusters/lab/scale", "{}", 422, "num_cpus"),
        ("POST", "clusters/lab/scale", '{"num_cpus": 0}', 422, "greater than or equal"),
        ("POST", "clusters/lab/scale", '{"num_cpus": 2}', 409, "resume it first"),
        ("POST", "clusters/lab/scale", '{"cpus": 2}', 422, "cpus"),
        ("POST", "clusters/lab/resume", "[1]", 422, ""),
        ("POST", "clusters/nobody/resume", "{}", 404, "nobody"),
        ("DELETE", "clusters/nobody", None, 404, "nobody"),
        ("POST", "clusters", "{}", 422, "exactly one"),
        ("POST", "clusters", "not json", 400, "JSON"),
        ("POST", "clusters", '{"template": "nothing"}', 404, "nothing"),
        ("POST", "clusters", '{"template": "../secret"}', 404, "secret"),
        ("POST", "clusters", '{"path": "../secret.yaml"}', 403, "secret"),
        ("POST", "clusters", '{"path": "/etc/passwd"}', 404, "etc/passwd"),
        ("POST", "clusters", '{"path": "cluster_templates/link.yaml"}', 403, "is outside"),
        ("POST", "clusters", '{"path": "bad.cluster.yaml"}', 422, "num_cpu"),
        ("POST", "clusters", '{"yaml": "num_cpus: -1"}', 422, "num_cpus"),
        ("POST", "clusters", '{"yaml": "a: [1"}', 422, "the form"),
    ],
)
async def test_wrong_requests_are_reported_with_what_is_wrong(
    api: Any, stopped: str, method: str, path: str, body: str | None, code: int, word: str
) -> None:
    reported = await asked(api, path, code, method=method, body=body)
    assert word in json.dumps(reported, ensure_ascii=False)
    assert (await asked(api, "operations")) == []


async def test_a_cluster_that_is_busy_takes_no_second_action(
    api: Any, stopped: str, provider_types: ProviderTypes
) -> None:
    go_on = threading.Event()

    class Slow(LocalProvider):
        def delete(self, name: str) -> None:
            go_on.wait(60)

    provider_types[0] = Slow
    first = await asked(api, "clusters/lab", 202, method="DELETE")
    refused = await asked(api, "clusters/lab/resume", 409, method="POST", body="{}")
    assert "`delete` is in progress" in refused["message"]
    refused = await asked(api, "clusters", 409, method="POST", body='{"yaml": "name: lab"}')
    go_on.set()
    assert (await ended(api, first))["state"] == "done"


async def test_a_start_shows_its_progress_and_its_failure(
    api: Any, root: Path, provider_types: ProviderTypes
) -> None:
    seen: list[Any] = []

    class Unlucky(LocalProvider):
        def up(
            self,
            template: Any,
            *,
            template_path: Any = None,
            progress: Any = None,
            wait: bool = True,
        ) -> Any:
            seen.append((template.name, template.num_cpus, template_path))
            progress("Starting Ray")
            raise ClusterUnreachableError("no luck", remedy="try again")

    provider_types[0] = Unlucky
    for body in ({"template": "big"}, {"path": "cluster_templates/big.yaml"}):
        started = await asked(api, "clusters", 202, method="POST", body=json.dumps(body))
        reported = await ended(api, started)
        assert (reported["kind"], reported["what"], reported["state"]) == ("up", "big", "failed")
        assert reported["lines"] == ["Starting Ray"]
        assert reported["trouble"]["remedy"] == "try again"
    typed = {"yaml": "name: typed\nnum_cpus: 3\n"}
    await asked(api, "clusters", 202, method="POST", body=json.dumps(typed))
    file = root / "cluster_templates/big.yaml"
    assert seen[:2] == [("big", 4, file), ("big", 4, file)]
    assert seen[2] == ("typed", 3, None)


def test_actions_are_reported_in_the_words_of_the_provider() -> None:
    assert set(ClusterAction) == {"suspend", "resume", "scale", "delete"}
