"""The panel without a browser: its messages, its saved state, and notebooks run by papermill."""

from __future__ import annotations

import base64
import re
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import nbformat
import pytest

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.metrics.events import ProfileEvent, StepEvent
from llmops_kernel.metrics.profile import CallTime
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunRecord
from llmops_kernel.widgets.show import RunPanel, follow_in_background
from tests.waiting import until
from tests.widgets.folder_run import FolderRun, FolderSource

ROOT = Path(__file__).parents[2]


class Recorded(RunPanel):
    """Notes what goes to the browser."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        super().__init__(*arguments, **settings)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append((content, buffers))
        self.columns_then = [column["name"] for column in self.state["columns"]]


def rows(data: bytes) -> list[int]:
    return [int(step) for step in array("f", data)[:: len(COLUMNS)]]


def test_rows_travel_once_and_the_full_state_has_all(simulate: Any, opened: Any) -> None:
    run = simulate(steps=30)
    run.start_up()
    run.start()
    for _ in run.train(last=10):
        pass
    panel = Recorded(opened(run), clock=run.clock)
    assert rows(panel.get_state()["columns"]) == list(range(1, 11))
    for _ in run.train(first=11, last=15):
        pass
    assert panel.refresh() is False
    assert panel.refresh() is False
    ((content, buffers),) = panel.sent
    assert content == {"kind": "rows", "first": 10}
    assert rows(buffers[0]) == list(range(11, 16))
    assert rows(panel.get_state()["columns"]) == list(range(1, 16))
    assert panel.state["progress_text"] == "step 15 of 30"


def test_a_column_that_a_script_adds_is_described_before_its_rows(tmp_path: Path) -> None:
    record = RunRecord(run_id="r-1", kind="script", name="n", created_s=1.0, cluster="c", config={})
    folder = RunFolder(tmp_path)
    folder.record.write_text(record.model_dump_json())
    journal = JournalWriter([folder.journal], stream="1-worker-0", attempt=1)
    journal.emit(StepEvent(step=1, loss=3.0))
    panel = Recorded(FolderRun(folder))
    assert rows(panel.get_state()["columns"]) == [1]
    journal.emit(StepEvent(step=2, loss=2.0, values={"reward": 0.5}))
    panel.refresh()
    ((content, buffers),) = panel.sent
    assert content == {"kind": "rows", "first": 0}
    assert panel.columns_then[-1] == "reward"
    width = len(panel.columns_then)
    assert array("f", buffers[0])[::width].tolist() == [1, 2]
    assert array("f", buffers[0])[-1] == 0.5


def test_a_new_panel_shows_the_same_as_the_old_one(simulate: Any, opened: Any) -> None:
    run = simulate()
    panel = RunPanel(opened(run), clock=run.clock)
    run.whole()
    assert panel.refresh() is True
    again = RunPanel(opened(run), clock=run.clock)
    assert again.state == panel.state
    assert again.all_rows() == panel.all_rows()


def test_browser_asks_for_all_rows_again(simulate: Any, opened: Any) -> None:
    run = simulate(steps=5)
    run.whole()
    panel = Recorded(opened(run))
    panel._handle_custom_msg({"kind": "resync"}, [])
    ((content, buffers),) = panel.sent
    assert content == {"kind": "rows", "first": 0}
    assert rows(buffers[0]) == [1, 2, 3, 4, 5]


def test_browser_asks_for_the_next_samples(simulate: Any, opened: Any) -> None:
    run = simulate(steps=5)
    run.whole()
    panel = Recorded(opened(run))
    for first in (50, -1, "x", None):  # Only what a panel can ask is answered.
        panel._handle_custom_msg({"kind": "samples", "first": first}, [])
    ((content, _),) = panel.sent
    assert (content["kind"], content["page"]["first"]) == ("samples", 50)
    assert panel.can_page


def test_refused_stop_is_reported_and_stays(simulate: Any, opened: Any) -> None:
    run = simulate(steps=5)
    run.start_up()
    panel = RunPanel(opened(run))
    panel._handle_custom_msg({"kind": "stop"}, [])
    deadline_s = time.monotonic() + 60
    while not panel.notice and time.monotonic() < deadline_s:
        time.sleep(0.01)
    panel.refresh()
    assert "cannot be stopped from here" in panel.notice["message"]
    assert panel.notice["remedy"] == f"llmops stop {run.run_id}"
    assert (panel.state["stop_asked"], panel.state["stop_refused"]) == (False, 1)


class Unreachable(FolderRun):
    """Its cluster does not answer the first polls."""

    def follower(self) -> FolderSource:
        source, polls = super().follower(), iter(range(100))
        read = source.poll

        def poll() -> Any:
            if 0 < next(polls) < 3:
                raise ClusterUnreachableError("the dashboard does not answer", remedy="llmops ls")
            return read()

        source.poll = poll  # type: ignore[method-assign]
        return source


def test_background_outlives_a_silent_cluster_and_ends_with_the_run(simulate: Any) -> None:
    run = simulate(steps=20)
    run.start_up()
    panel = RunPanel(Unreachable(run.folder))
    notices: list[str] = []
    panel.observe(lambda change: notices.append(change["new"].get("message", "")), "notice")
    thread = follow_in_background(panel)
    run.start()
    for _ in run.train():
        pass
    run.succeed()
    thread.join(20)
    assert not thread.is_alive()
    assert notices[0] == "the dashboard does not answer"
    assert notices[-1] == ""
    assert panel.state["state"] == "SUCCEEDED"


def test_a_profile_is_asked_for_and_its_calls_come_on_demand(simulate: Any, opened: Any) -> None:
    run = simulate(steps=30)
    run.start_up()
    run.start()
    for _ in run.train(last=10):
        pass
    tree = (CallTime(name="thread 1", calls=1, cpu_s=1.0, self_cpu_s=0.0),)
    run.worker.emit(ProfileEvent(first_step=3, last_step=5, path="/x", calls=tree))
    panel = Recorded(opened(run), clock=run.clock)
    panel.refresh()
    assert panel.state["profiles"]["can"]
    assert [one["title"] for one in panel.state["profiles"]["done"]] == ["steps 3 to 5"]
    assert "thread 1" not in str(panel.state)  # The tree is not sent with each change.
    for content in ({"kind": "profile_of", "number": 0}, {"kind": "profile_of", "number": 7}):
        panel._on_message(None, content, None)
    ((content, _),) = panel.sent
    assert content["detail"]["calls"][0]["name"] == "thread 1"
    panel._on_message(None, {"kind": "profile"}, None)
    until(lambda: panel.sent[1:], timeout_s=10)
    assert panel.sent[1][0] == {"kind": "acted", "action": "profile"}
    assert panel.notice["remedy"] == f"llmops stop {run.run_id}"


def test_one_module_without_imports() -> None:
    source = str(RunPanel._esm)
    assert re.search(r"\bexport\b.*\bdefault\b", source)
    assert not re.search(r"\bimport\b", source)
    assert "http://" not in source.replace("http://www.w3.org/2000/svg", "")  # A name.
    assert "MIT" in (ROOT / "llmops_kernel/widgets/static/uPlot.LICENSE").read_text()


@pytest.mark.slow
def test_papermill_saves_picture_table_and_curves(
    simulate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papermill = pytest.importorskip("papermill", reason="papermill is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run = simulate(steps=40)
    run.start_up()
    run.start()
    writer = threading.Timer(3.0, lambda: [list(run.train()), run.succeed()])
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                "from pathlib import Path\n"
                "from llmops_kernel.store.paths import RunFolder\n"
                "from tests.widgets.folder_run import FolderRun\n"
                "from llmops_kernel.widgets.show import wait_in_notebook\n"
                f"wait_in_notebook(FolderRun(RunFolder(Path({str(run.folder.root)!r}))))"
            )
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, tmp_path / "in.ipynb")
    writer.start()
    papermill.execute_notebook(
        str(tmp_path / "in.ipynb"), str(tmp_path / "out.ipynb"), progress_bar=False
    )
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    picture, table, result = done.cells[0].outputs
    assert base64.b64decode(picture.data["image/png"]).startswith(b"\x89PNG")
    assert picture.data["application/vnd.llmops.run+json"]["last_step"] == 40
    assert "step 40 of 40" in table.data["text/html"]
    assert result.data["text/plain"] == "'SUCCEEDED'"
    models = done.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    (model,) = [m for m in models.values() if m["model_module"] == "anywidget"]
    assert model["state"]["state"]["state"] == "SUCCEEDED"
    (buffer,) = [b["data"] for b in model["buffers"] if b["path"] == ["columns"]]
    assert rows(base64.b64decode(buffer)) == list(range(1, 41))
