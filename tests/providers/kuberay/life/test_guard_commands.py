"""`llmops cluster guard`, `llmops keep`, and the commands that would lose history."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import typer

from llmops_kernel.cli.clusters.group import duration_s
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops, llmops
from tests.conftest import home
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_guard import up, write_run
from tests.providers.kuberay.ray_dashboard import RayDashboard

__all__ = ["home", "llmops"]
pytestmark = pytest.mark.usefixtures("farm")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("30m", 1800), ("1h30m", 5400), ("1 d", 86400), ("0", 0), ("90", 90)],
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2x", "h", "2h later", "-1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 2h"):
        duration_s(text)


def test_keep_and_guard_as_commands(
    cloud: Cloud, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    up(cloud, idle={"suspend_after_s": 1.0})
    time.sleep(1.2)
    assert llmops("keep", "one", "--for", "2h") == 0
    assert "kept for" in capsys.readouterr().out
    assert llmops("cluster", "guard", "one", "--once") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert "suspend" not in cloud.live()["spec"]
    assert llmops("keep", "one", "--for", "0") == 0
    capsys.readouterr()
    # Without --once it ends by itself when there is nothing left to guard.
    assert llmops("cluster", "guard", "one", "--every", "0.2") == 0
    assert "Cluster one: suspended, as nothing has run for" in capsys.readouterr().out
    assert cloud.live()["spec"]["suspend"] is True


def test_a_cluster_without_a_policy_needs_no_guard(
    cloud: Cloud, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    up(cloud)
    assert llmops("cluster", "guard", "one") == 0
    assert "it has no policy" in capsys.readouterr().out


def test_commands_lose_no_history_unless_forced(
    cloud: Cloud,
    ray: RayDashboard,
    llmops: Llmops,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    up(cloud, idle={"suspend_after_s": 1.0})
    write_run(RunStore(), cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1", status="FAILED")
    ray.refuses.add("llmops/lora-1/1-worker-0.jsonl")
    time.sleep(1.2)
    for words in (
        ("suspend", "one", "--yes"),
        ("down", "one"),
        ("delete", "one", "--yes"),
        ("cluster", "guard", "one", "--once"),
    ):
        assert llmops(*words) == 1, words
        printed = capsys.readouterr()
        assert "cannot be archived" in " ".join((printed.out + printed.err).split()), words
    assert "suspend" not in cloud.live()["spec"]
    assert llmops("suspend", "one", "--yes", "--force") == 0
    assert cloud.live()["spec"]["suspend"] is True
