"""What Check tries beside rows: trackers, the output's folder, the hub; and in which process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.problems import Problem
from llmops_kernel.errors import DataError, MissingDependencyError
from llmops_kernel.services.check import (
    CloseCheck,
    check_closely,
    output_findings,
    tracker_findings,
)
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine
from tests.configs import training_config_from_dict
from tests.messages import missing

SCORING = ScoreConfig.model_validate(
    {"model": "tiny-llama", "input": "a.jsonl", "prompt": "{a}", "report_to": ["trackio"]}
)


def config(**sections: Any) -> Any:
    return training_config_from_dict({"model": "tiny-llama", "data": "rows.jsonl", **sections})


def test_the_package_of_a_tracker_is_there_or_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    here, absent = tracker_findings(["mlflow", "trackio"])
    assert (here.level, absent.level) == ("note", "warning")
    assert missing(here.message, "mlflow", "nodes") == []
    assert "trackio" in absent.message
    assert absent.remedy.startswith("`packages: [trackio]` ")


@pytest.mark.parametrize(
    "other", [ScriptConfig(script="a.py", report_to="trackio"), SCORING], ids=["script", "score"]
)
def test_trackers_of_every_kind_are_checked(tmp_path: Path, other: Any) -> None:
    (warning,) = check_closely(other, tmp_path).warnings
    assert warning.path == "report_to"


@pytest.mark.parametrize(
    ("url", "level", "said"),
    [
        (None, "note", "can be written"),
        ("out", "note", "out can be written"),
        ("file://{folder}/out", "note", "can be written"),
        ("new/folder/of/it", "note", "can be written"),
        ("s3://bucket/out", "note", "s3://bucket/out was not checked"),
        ("rows.jsonl", "problem", "Not a directory"),
        ("rows.jsonl/out", "problem", "{folder}/rows.jsonl"),
        ("/proc/none/out", "warning", "does not exist on this machine"),
    ],
)
def test_the_folder_of_the_output_is_tried(
    tmp_path: Path, url: str | None, level: str, said: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "rows.jsonl").write_text("")
    given = url and url.format(folder=tmp_path)
    (found,) = output_findings(config(output={"url": given}), tmp_path)
    assert (found.path, found.level) == ("output.url", level)
    assert said.format(folder=tmp_path) in found.message
    assert (found.level == "note") == (found.remedy == "")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "new").exists()


def test_a_model_that_does_not_fit_on_the_disk_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with (tmp_path / "model" / "model.safetensors").open("wb") as file:
        file.truncate(8 << 40)
    full = config(model="model", method="full", output={"url": "out"})
    (found,) = output_findings(full, tmp_path)
    assert found.level == "warning"
    assert "model has 8" in found.message
    (adapter,) = output_findings(config(model="model", output={"url": "out"}), tmp_path)
    assert adapter.level == "note"


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does about one model and one data set."""

    def do_GET(self) -> None:
        known = {"/api/models/org/there": {"id": "org/there"}, "/api/datasets/org/rows": {}}
        path = self.path.partition("?")[0]
        self.send_response(200 if path in known else 404)
        if path not in known:
            self.send_header("X-Error-Code", "RepoNotFound")
        body = json.dumps({"id": path, "siblings": [], **known.get(path, {})}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    yield address
    server.shutdown()
    server.server_close()


def looked(folder: Path, model: str, rows: str) -> tuple[CloseCheck, list[str]]:
    said: list[str] = []
    found = check_closely(
        config(model=model, data={"train": rows}), folder, progress=said.append, timeout_s=100
    )
    return found, said


def test_a_hub_id_is_known_unknown_or_not_asked_for_and_never_a_problem(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, said = looked(tmp_path, "org/there", "org/rows")
    assert (known.problems, known.warnings) == ([], [])
    notes = "\n".join(known.notes)
    assert missing(notes, "model 'org/there'", "data set 'org/rows'", "tokenizer") == []
    assert missing(said[-2], "hub", "'org/there'") == []
    assert missing(said[-1], "hub", "'org/rows'") == []
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"text": "a"}\n')
    unknown, _ = looked(tmp_path, "org/none", "rows.jsonl")
    assert unknown.problems == []
    assert [one.path for one in unknown.warnings] == ["model.id", "data.train"]
    assert "'org/none'" in unknown.warnings[0].message
    assert missing("\n".join(unknown.notes), "2 rows", "rows.jsonl") == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline, said = looked(tmp_path, "org/there", "rows.jsonl")
    assert "HF_HUB_OFFLINE=1" in offline.warnings[0].message
    assert not any("Contacting" in one for one in said)


def test_what_is_known_to_be_wrong_is_not_used_and_a_slow_look_is_a_warning(tmp_path: Path) -> None:
    asked: list[PreviewJob] = []

    def slow(job: PreviewJob, **_: Any) -> PreviewLine:
        asked.append(job)
        raise DataError("The data was not read and tokenised within 60 s.", remedy="fewer rows")

    known = [Problem(path=one, message="wrong") for one in ("data.train.1.path", "model.id")]
    mixed = config(data={"train": ["a.jsonl", "b.jsonl"]}, hooks={"file": "h.py"})
    found = check_closely(mixed, tmp_path, problems=known, run=slow)
    assert asked[0].skip == ["data.train.1.path", "model.id"]
    assert [one.path for one in found.warnings] == ["data.train"]
    assert "The data was not read and tokenised within 60 s" in str(found.warnings[0])


def test_a_machine_without_the_training_stack_notes_what_it_could_not_try(tmp_path: Path) -> None:
    def without(job: PreviewJob, **_: Any) -> PreviewLine:
        raise MissingDependencyError("The tokenizer needs transformers.", remedy="pip install it")

    found = check_closely(config(), tmp_path, run=without)
    assert (found.problems, found.warnings) == ([], [])
    assert "The tokenizer needs transformers" in found.notes[0]


def test_only_training_configs_are_looked_at_closely(tmp_path: Path) -> None:
    assert check_closely(object(), tmp_path) == CloseCheck()
