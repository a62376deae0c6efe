"""A provider registered from outside works everywhere without a change elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.config.assist import complete, examine, form_schema, hover
from llmops_kernel.config.assist.file_kinds import CLUSTER
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ClusterNotFoundError, ClusterStateError, ConfigError, LLMOpsError
from llmops_kernel.jobs.guard import GuardThread, guard_once
from llmops_kernel.jobs.history import archive_runs, stop_after_archiving
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.providers.capabilities import editor_of, guard_of
from llmops_kernel.providers.protocol import ClusterAction
from llmops_kernel.providers.registry import (
    provider_for_name,
    provider_named,
    provider_names,
    register,
    shares_disk,
    survey,
    unregister,
)
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import call
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.providers.toy_provider import FILE, HIDDEN, TEMPLATE, TOY


@pytest.fixture
def ray() -> Iterator[RayDashboard]:
    with RayDashboard() as answering:
        yield answering


Llmops = Callable[..., int]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


@pytest.fixture
def command(home: Path) -> Llmops:
    return call


@pytest.fixture(autouse=True)
def toys(home: Path, ray: RayDashboard, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`one` is up, `two` has lost its head; no kubeconfig is near."""
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    home.mkdir(parents=True)
    clusters = {"one": f"http://{ray.address}", "two": None, f"{HIDDEN}three": None}
    (home / FILE).write_text(json.dumps(clusters))
    register("toy", TOY, template=TEMPLATE)
    yield
    unregister("toy")


def write_run(ray: RayDashboard, folder: Path, *, cluster: str = "one") -> str:
    """A run whose journal and log are on the cluster only."""
    store, run_id = RunStore(), "lora-1"
    now_s = time.time()
    record = RunRecord(
        run_id=run_id, name="lora", created_s=now_s, cluster=cluster, provider="toy", config={}
    )
    store.create(record, config_yaml="name: lora\n")
    attempt = Attempt(
        number=1, submission_id="lora-1-1", cluster=cluster, dashboard_url="", submitted_s=now_s
    )
    store.add_attempt(run_id, attempt)
    folder.mkdir()
    with closing(JournalWriter([folder], stream="1-worker-0", attempt=1)) as writer:
        writer.emit(WarningEvent(message="from the cluster"))
    ray.files["llmops/lora-1/1-worker-0.jsonl"] = (folder / "1-worker-0.jsonl").read_bytes()
    ray.files["job-driver-lora-1-1.log"] = b"the driver's last line\n"
    ray.run("lora-1-1", status="SUCCEEDED")
    return run_id


def messages(run_id: str) -> list[str]:
    return [e.message for e in RunStore().events(run_id) if isinstance(e, WarningEvent)]


def test_its_clusters_are_listed_and_shown(
    command: Llmops,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("ls", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["name"], row["provider"], row["state"]) for row in rows} == {
        ("one", "toy", "ready"),
        ("two", "toy", "starting"),
    }
    assert command("status", "one", "--json") == 0
    assert json.loads(capsys.readouterr().out)["dashboard_url"].startswith("http://127.0.0.1:")
    assert {info.name for info in llmops.clusters()} == {"one", "two"}


def test_up_starts_what_its_own_template_says(
    ray: RayDashboard, command: Llmops, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.cluster.yaml"
    path.write_text(f"provider: toy\nhead: http://{ray.address}\n")
    assert command("check", str(path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Toy lab, whose head is http://{ray.address}." in shown
    assert command("up", str(path)) == 0
    assert llmops.cluster("lab").info.provider == "toy"
    assert llmops.cluster("lab").dashboard_url == f"http://{ray.address}"
    assert llmops.up(path).name == "lab"


def test_all_mistakes_in_its_template_are_reported(
    command: Llmops, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.cluster.yaml"
    path.write_text("provider: toy\nname: L1\nhaed: x\nspare: perhaps\nnum_cpus: 2\n")
    assert command("up", str(path)) == 1
    error = capsys.readouterr().err
    for words in ("name: must be", "did you mean head?", "spare: must be", "num_cpus: unknown"):
        assert words in error
    path.write_text("provider: toy\nhead: here\n")
    assert command("check", str(path)) == 1
    assert "head: not an address" in capsys.readouterr().err
    path.write_text("provider: tay\n")
    assert command("check", str(path)) == 1
    assert "must be one of local, kuberay, toy" in capsys.readouterr().err


def test_its_template_is_written_completed_and_explained(
    command: Llmops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("cluster", "init", "lab", "--kind", "toy") == 0
    text = (tmp_path / "cluster_templates" / "lab.yaml").read_text()
    assert "# Address of the dashboard of a Ray that is running.\nhead: http://127" in text
    found = examine(CLUSTER, text)
    assert (found.problems, CLUSTER.effect(found.config)) == (
        [],
        ["Toy lab, whose head is http://127.0.0.1:8265."],
    )
    fields = [one.label for one in complete(CLUSTER, "provider: toy\n", line=2, column=0)]
    assert fields == ["head", "name", "spare"]
    providers = [one.label for one in complete(CLUSTER, "provider: \n", line=1, column=10)]
    assert providers == ["local", "kuberay", "toy"]
    explained = hover(CLUSTER, text, line=text[: text.index("\nhead:")].count("\n") + 2, column=1)
    assert explained is not None
    assert explained.text.startswith("Address of the dashboard")
    form = form_schema(CLUSTER, provider="toy")
    assert form["properties"]["provider"]["enum"] == ["local", "kuberay", "toy"]
    assert form["required"] == ["head"]


def test_a_provider_without_a_template_of_its_own_has_a_name_only(tmp_path: Path) -> None:
    register("plain", TOY)
    path = tmp_path / "mine.cluster.yaml"
    try:
        path.write_text("provider: plain\n")
        template = load_cluster_template(path)
        path.write_text("provider: plain\nhead: x\n")
        with pytest.raises(ConfigError, match="head: unknown key"):
            load_cluster_template(path)
    finally:
        unregister("plain")
    assert template.model_dump() == {"name": "mine", "provider": "plain"}
    assert template.effect() == ["Cluster mine of provider plain."]


def test_a_cluster_is_located_by_name_also_where_it_is_not_listed(ray: RayDashboard) -> None:
    assert provider_for_name("one").name == "toy"
    assert provider_for_name(f"{HIDDEN}three").name == "toy"
    with llmops.cluster("one").client() as client:
        assert client.version()["ray_version"] == "2.60.0"
    with pytest.raises(ClusterNotFoundError, match="known: one, two"):
        provider_for_name("four")


def test_a_deletion_is_previewed_then_done(
    command: Llmops,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("delete", "one") == 1
    assert "Removes toy one." in capsys.readouterr().err
    assert command("delete", "one", "--yes") == 0
    assert provider_named("toy").names() == ("two",)
    preview = provider_named("toy").preview("two", ClusterAction.DELETE)
    assert preview.needs_confirmation


def test_the_history_of_its_runs_is_archived_before_it_goes(
    ray: RayDashboard, tmp_path: Path
) -> None:
    run_id = write_run(ray, tmp_path / "remote")
    assert messages(run_id) == []
    stop_after_archiving(provider_named("toy"), "one", "delete")
    assert messages(run_id) == ["from the cluster"]
    log = RunStore().folder(run_id).logs / "driver-1.log"
    assert log.read_text() == "the driver's last line\n"
    assert "one" not in provider_named("toy").names()


def test_a_cluster_without_a_head_keeps_nobody_waiting(ray: RayDashboard, tmp_path: Path) -> None:
    write_run(ray, tmp_path / "remote", cluster="two")
    assert archive_runs(provider_named("toy"), "two") == ()


def test_what_it_cannot_do_is_refused_with_its_name() -> None:
    toy = provider_named("toy")
    with pytest.raises(ClusterStateError, match="Provider toy has no manifests"):
        editor_of(toy)
    with pytest.raises(ClusterStateError, match="Provider toy has no idle guard"):
        guard_of(toy)
    with pytest.raises(ClusterStateError, match="no idle guard"):
        guard_once(toy, "one")
    guard = GuardThread(providers=lambda: [toy], period_s=0.01)
    guard.start()
    guard.stop()


def test_the_built_in_providers_have_the_capabilities_of_their_kind() -> None:
    kuberay = provider_named("kuberay")
    assert editor_of(kuberay) is kuberay
    assert guard_of(kuberay) is kuberay
    with pytest.raises(ClusterStateError, match="Provider local has no manifests"):
        editor_of(provider_named("local"))
    assert provider_names() == ("local", "kuberay", "toy")
    assert [shares_disk(name) for name in ("local", "kuberay", "toy", "unknown")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_lists_of_a_user_without_kubernetes_do_not_load_its_provider(home: Path) -> None:
    """In a process of its own: others have loaded it here."""
    code = (
        "import sys\n"
        "from llmops_kernel.providers import registry\n"
        "seen, names = registry.survey(), [one.name for one in registry.providers()]\n"
        "module = 'llmops_kernel.providers.kuberay.provider'\n"
        "print(len(seen.errors), names, [one for one in (module, 'httpx') if one in sys.modules])"
    )
    environment = {**os.environ, "KUBECONFIG": str(home / "none")}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0 ['local'] []"


def test_a_provider_that_cannot_be_loaded_hides_no_cluster() -> None:
    register("broken", "no_such_package.provider:Provider")
    try:
        seen = survey()
    finally:
        unregister("broken")
    assert {info.name for info in seen.infos} == {"one", "two"}
    (error,) = seen.errors
    assert "'broken' cannot be loaded from no_such_package.provider" in error.message
    assert isinstance(error, LLMOpsError)
