"""`llmops report`: what it says where it cannot send a run."""

from __future__ import annotations

import pytest

from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.messages import missing
from tests.server.runs import make_run


@pytest.fixture
def shown(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> object:
    make_run(RunStore(), "plain-1", steps=2)
    make_run(RunStore(), "tracked-1", steps=2, config={"report_to": ["trackio"]})

    def call(*arguments: str) -> str:
        assert llmops("report", *arguments) == 1
        return " ".join(capsys.readouterr().err.split())

    return call


def test_a_run_without_trackers_needs_a_name(shown) -> None:
    assert missing(shown("plain-1"), "No tracker is named", "mlflow", "wandb") == []


def test_an_unknown_tracker_is_named_with_those_that_there_are(shown) -> None:
    assert missing(shown("plain-1", "--to", "clearml"), "clearml", "comet_ml", "trackio") == []


def test_a_package_that_is_not_here_is_named(shown) -> None:
    assert missing(shown("tracked-1"), "trackio", "not installed") == []
