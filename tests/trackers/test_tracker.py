"""What is written nowhere, and what a machine without a tracker's package says."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.config.names import TRACKERS
from llmops_kernel.errors import MissingDependencyError
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.store.record import Attempt, GitState, RunRecord
from llmops_kernel.trackers.tracker import BACKENDS, facts_of, make, redacted
from tests.trackers.test_forwarder import run_in


def test_each_tracker_of_a_config_is_one_that_we_have() -> None:
    assert tuple(BACKENDS) == TRACKERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at http://ann:secret@host:5000/api", "at http://***@host:5000/api"),
        ("https://t.example/x?write_token=abcdef&a=1", "https://t.example/x?write_token=***&a=1"),
        ("key abcdef123 was refused", "key *** was refused"),
        ("file /etc/tokens/wandb", "file /etc/tokens/wandb"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_credentials_are_taken_out_of_a_text(text: str, expected: str) -> None:
    env = {"WANDB_API_KEY": "abcdef123", "HF_TOKEN_PATH": "/etc/tokens", "PATH": "nothing"}
    assert redacted(text, env) == expected


def test_a_missing_package_is_named_and_not_installed() -> None:
    with pytest.raises(MissingDependencyError) as raised:
        make("trackio")
    assert "`packages: [trackio]`" in raised.value.remedy


def test_a_project_is_the_configs_then_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_in(tmp_path).project("WANDB_PROJECT") == "tags"
    monkeypatch.setenv("WANDB_PROJECT", "menu")
    assert run_in(tmp_path).project("WANDB_PROJECT") == "menu"
    named = run_in(tmp_path, config={"tracking": {"project": "mine"}})
    assert named.project("WANDB_PROJECT") == "mine"


def test_only_a_small_output_on_this_machine_is_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapter.bin").write_bytes(b"12345678")
    output = OutputEvent(path=str(tmp_path), what="adapter")
    assert run_in(tmp_path).files_of(output) == tmp_path
    monkeypatch.setenv("LLMOPS_COPY_OUTPUTS", "7")
    assert run_in(tmp_path).files_of(output) is None
    monkeypatch.delenv("LLMOPS_COPY_OUTPUTS")
    assert run_in(tmp_path, config={"tracking": {"upload": False}}).files_of(output) is None
    assert run_in(tmp_path).files_of(OutputEvent(path="s3://b/x", what="model")) is None


def test_the_facts_of_a_record_have_no_credentials() -> None:
    record = RunRecord(
        run_id="a",
        name="a",
        created_s=1.0,
        cluster="dev",
        config={},
        code_hash="f00",
        user="ann",
        git=GitState(revision="abc", dirty=True),
    )
    attempt = Attempt(
        number=1,
        submission_id="a-1",
        cluster="dev",
        dashboard_url="https://ann:pw@ray.example/",
        submitted_s=1.0,
    )
    facts = facts_of(record, attempt)
    assert facts["git_revision"] == "abc with changes"
    assert (facts["user"], facts["cluster"], facts["code_hash"]) == ("ann", "dev", "f00")
    assert facts["dashboard"] == "https://***@ray.example/"
