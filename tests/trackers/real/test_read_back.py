"""A run in each tracker, written by its own library and read by its own reader."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import EndEvent, EvalEvent, Event, OutputEvent, StepEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.run_notes import write_notes
from tests.store.events import start as start_event
from tests.trackers.real import environment as env
from tests.trackers.test_forwarder import journal_of
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.beside]
NAMES = ("comet_ml", "mlflow", "tensorboard", "trackio", "wandb")
SECRET = "a-key-of-somebody"


def steps(first: int, last: int) -> list[Event]:
    rate = 1000.0
    now_s = time.time()
    return [
        StepEvent(step=n, loss=1 / n, mfu=0.25, tokens_per_second=rate + n, time_s=now_s + n / 100)
        for n in range(first, last + 1)
    ]


def truth(last: int) -> list[list[Any]]:
    points = [["eval/loss", last, 0.5]]
    for n in range(1, last + 1):
        points += [["train/loss", n, 1 / n], ["train/mfu", n, 0.25]]
        points += [["train/tokens_per_second", n, 1000.0 + n]]
    return sorted(points)


def assert_same(points: Sequence[Sequence[Any]], last: int) -> None:
    """Compare as numbers of 32 bits, which TensorBoard writes."""
    ours = ("train/", "eval/")
    found = sorted(list(point) for point in points if point[0].startswith(ours))
    expected = truth(last)
    assert [point[:2] for point in found] == [point[:2] for point in expected]
    for point, other in zip(found, expected, strict=True):
        assert math.isclose(point[2], other[2], rel_tol=1e-6), (point, other)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was sent to all trackers at once; the process was killed once meanwhile."""
    folder = tmp_path_factory.mktemp("run")
    write_notes(RunFolder(folder), tags=["menu"], note="second try")
    output = folder / "output"
    output.mkdir()
    (output / "adapter.safetensors").write_bytes(b"x" * 100)
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    journal_of(folder, "worker-1", start_event(), *steps(1, 40))
    process = env.start(folder, NAMES, driver=driver.pid, WANDB_API_KEY=SECRET)
    until(lambda: all(_has_sent(folder, name) for name in NAMES))
    process.kill()
    process.wait()
    samples = ({"row": "1", "prompt": "Soup|?", "prediction": "vegan", "reference": "meat"},)
    journal_of(folder, "worker-1", *steps(41, 60))
    journal_of(folder, "worker-1", EvalEvent(step=60, metrics={"eval_loss": 0.5}, samples=samples))
    journal_of(folder, "worker-1", OutputEvent(path=str(output), what="adapter", size_bytes=100))
    process = env.start(folder, NAMES, driver=driver.pid, WANDB_API_KEY=SECRET)
    journal_of(folder, "driver", EndEvent(state="STOPPED", message="Stopped at step 60."))
    driver.communicate(b"\n")
    assert process.wait(timeout=400) == 0
    return folder


def _has_sent(folder: Path, name: str) -> bool:
    path = folder / "trackers" / f"{name}.state"
    return path.exists() and b'"sent"' in path.read_bytes()


@pytest.fixture(scope="module")
def found(reported: Path) -> dict[str, dict[str, Any]]:
    return {name: env.read_back(name, reported) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_there_once(found: dict[str, dict[str, Any]], name: str) -> None:
    assert_same(found[name]["points"], 60)


def test_mlflow_has_config_facts_samples_and_a_version_of_the_output(
    found: dict[str, dict[str, Any]],
) -> None:
    there = found["mlflow"]
    assert there["config"]["optimizer.learning_rate"] == "0.1"
    facts = there["facts"]
    assert facts["llmops.run_id"] == env.RUN
    assert facts["llmops.dashboard"] == "http://127.0.0.1:8265"
    assert (facts["llmops.device"], facts["menu"]) == ("cpu", "true")
    assert (facts["mlflow.note.content"], facts["mlflow.user"]) == ("second try", "ann")
    assert there["state"] == "KILLED"
    assert there["samples"]["data"] == [["1", "Soup|?", "vegan", "meat"]]
    assert there["files"]["adapter/adapter.safetensors"] == 100
    ((name, source, tags),) = there["versions"]
    assert (name, tags["llmops.run_id"]) == ("tags", env.RUN)
    assert source.endswith("/adapter")


def test_tensorboard_has_texts(found: dict[str, dict[str, Any]]) -> None:
    texts = found["tensorboard"]["texts"]
    assert "| optimizer.learning_rate | 0.1 |" in texts["config"]
    assert "| run_id | tags-1 |" in texts["run"]
    assert "Soup\\|?" in texts["samples"]
    assert "adapter" in texts["output/adapter"]
    assert texts["run/state"] == "STOPPED"


def test_trackio_has_config_and_samples(found: dict[str, dict[str, Any]]) -> None:
    there = found["trackio"]
    assert there["config"]["optimizer.learning_rate"] == "0.1"
    assert there["config"]["run_id"] == env.RUN
    ((sample,),) = [table["_value"] for table in there["samples"]]
    assert sample["prediction"] == "vegan"


def test_wandb_has_config_samples_and_how_it_ended(found: dict[str, dict[str, Any]]) -> None:
    there = found["wandb"]
    assert there["config"]["optimizer"] == {"learning_rate": 0.1}
    assert there["config"]["llmops"]["run_id"] == env.RUN
    assert ["samples/nrows", 60, 1] in there["points"]
    assert there["state"] == 255  # Which W&B shows as killed.


def test_comet_has_config_and_facts(found: dict[str, dict[str, Any]]) -> None:
    there = found["comet_ml"]
    assert there["config"]["optimizer.learning_rate"] == "0.1"
    assert there["facts"]["llmops.run_id"] == env.RUN
    assert there["facts"]["llmops.state"] == "STOPPED"


def test_the_journal_has_a_link_to_each_and_no_secret_is_on_disk(reported: Path) -> None:
    events = FolderTail(reported / "journal").read()
    links = {event.name: event for event in events if event.kind == "tracker"}
    assert sorted(links) == sorted(NAMES)
    assert links["tensorboard"].path.endswith("trackers/tensorboard/tags-1")
    assert [event for event in events if event.kind == "warning"] == []
    written = [path for path in reported.rglob("*") if path.is_file()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
