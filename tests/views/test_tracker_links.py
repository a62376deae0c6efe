"""Where a run is in its trackers, on each screen; only addresses of the web are links."""

from __future__ import annotations

from llmops_kernel.metrics.events import TrackerEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.snapshot import snapshot
from llmops_kernel.views.static_run import rows, table_html
from tests.store.events import start

PAGE = "https://mlflow.example/#/experiments/1/runs/2"
HOSTILE = "javascript:alert('<b>')"


def view() -> TrainingView:
    events = [
        TrackerEvent(name="mlflow", url="https://old.example/", stream="1-trackers", seq=1),
        TrackerEvent(name="mlflow", url=PAGE, stream="1-trackers", seq=2, time_s=2.0),
        TrackerEvent(name="wandb", url=HOSTILE, path="/runs/<b>", stream="1-trackers", seq=3),
    ]
    return TrainingView([start(), *events])


def test_the_newest_of_each_is_shown() -> None:
    record = RunRecord(run_id="a", name="a", created_s=1.0, cluster="dev", config={})
    panel = snapshot(view(), record, now_s=3.0)
    assert [(one.name, one.url, one.path) for one in panel.trackers] == [
        ("mlflow", PAGE, ""),
        ("wandb", "", "/runs/<b>"),
    ]
    lines = dict(rows(view()))
    assert (lines["mlflow"], lines["wandb"]) == (PAGE, "/runs/<b>")
    assert view().summary()["trackers"] == {"mlflow": PAGE, "wandb": "/runs/<b>"}


def test_a_saved_notebook_has_no_markup_of_it() -> None:
    html = table_html(view())
    assert "<b>" not in html
    assert "/runs/&lt;b&gt;" in html
