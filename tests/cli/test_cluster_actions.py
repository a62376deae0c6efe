"""`llmops suspend | resume | scale | delete`, on a cluster that is stopped."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.cli.clusters.details import details, outcome
from llmops_kernel.cli.console import out
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterSize,
    ClusterState,
)
from llmops_kernel.services.backend import Backend
from tests.cli.conftest import Llmops
from tests.providers.local.test_actions import FULL, defined


@pytest.fixture
def lab(home: Path, tmp_path: Path) -> str:
    folder = cluster_folder(home, "lab")
    folder.create()
    folder.write(defined(tmp_path / "gone", FULL).model_copy(update={"stopped_s": 1.0}))
    return "lab"


def test_a_deletion_is_previewed_and_needs_a_yes(
    lab: str, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("delete", lab) == 1
    reported = capsys.readouterr().err
    assert "deletes its definition and its logs" in reported
    assert "Keeps: runs" in reported
    assert "Try: llmops delete lab --yes" in reported
    assert LocalProvider().names() == ("lab",)
    assert llmops("delete", lab, "--yes") == 0
    assert "llmops runs" in capsys.readouterr().out
    assert LocalProvider().names() == ()


def test_worker_groups_of_a_local_cluster_are_refused_before_a_preview(
    lab: str, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("scale", lab, "--workers", "w=2") == 1
    reported = capsys.readouterr().err
    assert "is local: it has no worker groups" in reported
    assert "confirm" not in reported


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("suspend", "lab"), "it is already stopped"),
        (("scale", "lab", "--num-cpus", "1"), "it is stopped: resume it first"),
    ],
)
def test_what_does_not_fit_the_state_is_refused_with_the_reason(
    lab: str, llmops: Llmops, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert llmops(*words, "--yes") == 1
    reported = capsys.readouterr().err
    assert f"Cannot {words[0]} cluster 'lab': {why}" in reported


@pytest.mark.parametrize(
    ("state", "head_runs", "words", "age"),
    [
        ("stopping", False, "is being stopped", "up for"),
        ("stopped", False, "is stopped", "created"),
        ("stopped", True, "has no workers any more, and its head keeps running", "up for"),
        ("starting", False, "is starting: It waits in queue a", "starting for"),
    ],
)
def test_the_words_about_a_cluster_that_was_told_to_stop(
    state: str,
    head_runs: bool,
    words: str,
    age: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    info = ClusterInfo(
        name="one",
        provider="kuberay",
        state=ClusterState(state),
        head_runs=head_runs,
        message="It waits in queue a",
        created_s=time.time() - 60,
    )
    assert outcome(info) == words
    out().print(details(info))
    printed = capsys.readouterr().out
    assert age in printed
    assert not any(
        other in printed for other in ("created", "up for", "starting for") if other != age
    )


def test_resume_and_scale_report_what_came_of_it(
    lab: str, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    class Quick(LocalProvider):
        def _answer(self, name: str, *sizes: ClusterSize, **values: Any) -> ClusterInfo:
            asked.append(sizes)
            values["progress"]("Starting Ray")
            return ClusterInfo(
                name=name, provider="local", state=ClusterState.READY, message="without `env`"
            )

        resume = scale = _answer

        def check_scale(self, name: str, size: ClusterSize) -> None:
            """Whatever its state is."""

        def preview(self, name: str, action: ClusterAction) -> ActionPreview:
            return ActionPreview(
                cluster=name,
                action=action,
                summary="Restarts it.",
                stops=("run menu-1 (running)",),
                needs_confirmation=True,
            )

    llmops = partial(llmops, backend=Backend(providers=lambda: [Quick()]))
    assert llmops("resume", lab) == 0
    assert "without `env`" in capsys.readouterr().out
    assert llmops("scale", lab, "--num-cpus", "2") == 1
    reported = capsys.readouterr().err
    assert "Stops: run menu-1 (running)" in reported
    assert "Try: llmops scale lab --num-cpus 2 --yes" in reported
    assert len(asked) == 1
    assert llmops("scale", lab, "--num-cpus", "2", "--yes") == 0
    assert asked[1] == (ClusterSize(num_cpus=2, workers={}),)
