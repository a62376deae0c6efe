"""The doctor's lines: what they say here, and what they would say elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from llmops_kernel.config.assist.file_kinds import check_files
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.services.doctor import DoctorReport, examine
from llmops_kernel.services.doctor_checks import (
    Finding,
    Level,
    all_checks,
    compare_with_pins,
    fail,
    folders,
    notebook_parts,
    ok,
    proxies,
    run_check,
)
from llmops_kernel.services.doctor_trial import STEPS, RunReport, judge, write_workspace
from llmops_kernel.store.journal.training_view import TrainingView
from tests.configs import load_training_config
from tests.messages import missing
from tests.store.events import end, evaluation, phase, start, steps


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.__name__)
def test_every_line_says_what_was_seen_and_how_to_mend_it(check, home: Path) -> None:
    finding = run_check(check)
    assert finding.name
    assert finding.seen
    assert "the check itself failed" not in finding.seen
    assert bool(finding.remedy) == (finding.level is not Level.OK)


def test_a_check_that_breaks_is_a_finding() -> None:
    def some_check() -> Finding:
        raise OSError("no such device")

    finding = run_check(some_check)
    assert finding.level is Level.FAIL
    assert finding.name == "some check"
    assert "no such device" in finding.seen


def test_pins_are_compared() -> None:
    asked = ["pytest>=1", "pytest<1", "no-such-package", 'never; extra == "docs"']
    wrong, missing, count = compare_with_pins(asked)
    assert len(wrong) == 1
    assert wrong[0].endswith("instead of <1")
    assert missing == ["no-such-package"]
    assert count == 3


def test_a_home_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody may create a folder here, not even root.
    monkeypatch.setenv("LLMOPS_HOME", "/sys/llmops-home")
    assert folders().level is Level.FAIL


def test_a_home_that_others_can_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    assert folders().level is Level.OK
    (tmp_path / "home").chmod(0o755)
    found = folders()
    assert found.level is Level.WARN
    assert f"chmod 700 {tmp_path / 'home'}" in found.remedy


def test_a_home_below_a_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "file" / "home"))
    finding = folders()
    assert finding.level is Level.FAIL
    assert "LLMOPS_HOME" in finding.remedy


@pytest.mark.parametrize(
    ("excluded", "level"), [("", Level.WARN), ("localhost,127.0.0.1", Level.OK), ("*", Level.OK)]
)
def test_a_proxy_that_would_take_loopback_traffic_is_reported(
    excluded: str, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", excluded)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert proxies().level is level


def test_the_trial_config_is_right(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    write_workspace(folder)
    config = load_training_config(folder / "doctor.train.yaml")
    assert config.training.max_steps == STEPS
    assert check_files(config, folder) == []
    assert len((folder / "train.jsonl").read_text().splitlines()) == 4 * STEPS


def _good_run(output: Path) -> list:
    output.mkdir()
    return [
        phase("driver", "begin", 99.0, stream="1-driver", seq=1),
        start(),
        *steps(1, STEPS),
        evaluation(0, stream="1-worker-1", seq=50, time_s=100.5, eval_loss=3.0),
        evaluation(STEPS, stream="1-worker-1", seq=51, time_s=200.0, eval_loss=2.0),
        OutputEvent(path=str(output), what="adapter", size_bytes=5, stream="1-driver", seq=60),
        end("SUCCEEDED"),
    ]


def test_a_good_trial_is_judged_so(tmp_path: Path) -> None:
    assert judge(TrainingView(_good_run(tmp_path / "output"))).level is Level.OK


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("end", "still RUNNING"),
        ("step", "19 of 20 steps"),
        ("eval", "1 of 2 evaluations"),
        ("output", "no adapter"),
    ],
)
def test_each_part_that_fell_short_is_named(kind: str, reason: str, tmp_path: Path) -> None:
    events = _good_run(tmp_path / "output")
    position = next(n for n in reversed(range(len(events))) if events[n].kind == kind)
    del events[position]
    finding = judge(TrainingView(events))
    assert finding.level is Level.FAIL
    assert reason in finding.seen


def test_an_output_that_is_not_there_is_no_output(tmp_path: Path) -> None:
    events = _good_run(tmp_path / "output")
    shutil.rmtree(tmp_path / "output")
    assert "no adapter" in judge(TrainingView(events)).seen


def test_a_report_names_what_failed_and_prints_a_line_a_check() -> None:
    findings = (ok("Python", "3.11"), fail("Ray", "not installed", "pip install ray"))
    run = RunReport(parts=[fail("run", "2 of 20 steps were received", "run it again")])
    report = DoctorReport(findings=findings, run=run)
    assert [finding.name for finding in report.failed] == ["Ray", "run"]
    assert not report.is_ok
    assert report.as_dict()["ok"] is False
    assert [line.split() for line in repr(report).splitlines()[:3]] == [
        ["ok", "Python", "3.11"],
        ["fail", "Ray", "not", "installed"],
        ["Try:", "pip", "install", "ray"],
    ]


def test_each_finding_is_reported_at_once(home: Path) -> None:
    seen: list[Finding] = []
    report = examine(on_finding=seen.append)
    assert tuple(seen) == report.findings
    assert report.run is None


def test_the_notebook_line_names_the_lab_extension_and_whether_it_is_built(tmp_path: Path) -> None:
    """It said ok before `make lab` had built it."""
    for part in ("@jupyter-widgets/jupyterlab-manager", "anywidget"):
        (tmp_path / part).mkdir(parents=True)
    before = notebook_parts(tmp_path)
    assert before.level is Level.WARN
    assert missing(before.seen, "@llmops/lab", tmp_path / "@llmops") == []
    folder = tmp_path / "@llmops/lab"
    folder.mkdir(parents=True)
    package = {"version": "0.1.0", "jupyterlab": {"_build": {"load": "static/remoteEntry.1.js"}}}
    (folder / "package.json").write_text(json.dumps(package))
    assert "static/remoteEntry.1.js is missing" in notebook_parts(tmp_path).seen
    (folder / "static").mkdir()
    (folder / "static/remoteEntry.1.js").touch()
    built = notebook_parts(tmp_path)
    assert built.level is Level.OK
    assert "@llmops/lab 0.1.0" in built.seen
