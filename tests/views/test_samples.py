"""Samples and members of a run on each screen without a browser; hostile texts stay texts."""

from __future__ import annotations

import io
import struct
import warnings
from html.parser import HTMLParser

import pytest
from rich.console import Console

from llmops_kernel.cli.runs.live import line_of
from llmops_kernel.cli.runs.live_parts import screen, summary
from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    OutputEvent,
    PhaseEvent,
    ProgressEvent,
)
from llmops_kernel.store.journal.score_view import ScoreView
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import static_run
from llmops_kernel.views.columns import speed_of, speed_title
from llmops_kernel.views.snapshot import member_table, sample_table, snapshot
from tests.store.events import start, steps

RECORD = RunRecord(
    run_id="tags-1",
    name="tags",
    kind="score",
    created_s=1.0,
    cluster="local",
    config={"model": {"id": "tiny-llama"}, "input": {"path": "menu.jsonl"}},
)
HOSTILE = "<img src=x onerror=alert(1)></td><script>alert(2)</script>[bold]no[/bold]"
SAMPLE = {
    "row": "7",
    "prompt": f"Tom Kha {HOSTILE}",
    "prediction": "thai",
    "reference": HOSTILE,
    HOSTILE: "of a hook",
}


def progress(done: int, time_s: float, **members: dict[str, float]) -> ProgressEvent:
    return ProgressEvent(
        done=done,
        total=200,
        time_s=time_s,
        seq=int(time_s),
        stream="1-driver",
        values={"rows_per_second": 30.0, "output_tokens_per_second": 300.0, "errors": 2.0},
        members={name.replace("_", " "): values for name, values in members.items()},
    )


def score_view(*more: object) -> ScoreView:
    phases = [("driver", 10.0, 11.0), ("first_rows", 11.0, 12.5)]
    events: list[object] = [
        PhaseEvent(name=name, state=state, time_s=at, seq=int(at * 10), stream="1-driver")
        for name, begin, end in phases
        for state, at in (("begin", begin), ("end", end - 0.05))
    ]
    events += [
        progress(80, 20.0),
        progress(
            120,
            22.0,
            replica_0={"rows_per_second": 20.0, "kv_cache": 0.25},
            replica_1={"rows_per_second": 10.0},
        ),
        EvalEvent(step=120, metrics={}, samples=(SAMPLE,), time_s=23.0, seq=500, stream="1-driver"),
    ]
    return ScoreView([*events, *more])  # type: ignore[list-item]


def ended() -> ScoreView:
    fields = {"time_s": 30.0, "stream": "1-driver"}
    return score_view(
        EvalEvent(step=200, metrics={"exact_match": 0.5}, num_rows=200, seq=600, **fields),
        OutputEvent(path="s3://bucket/<b>scores</b>", what="scores", seq=601, **fields),
        EndEvent(state="SUCCEEDED", seq=602, **fields),
    )


def printed(renderable: object, *, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_samples_are_a_table_with_the_known_fields_first() -> None:
    table = sample_table(score_view())
    assert table.at == "after 120 rows"
    assert table.columns == ["row", "prompt", "answer", "reference", HOSTILE]
    assert table.rows == [list(SAMPLE.values())]
    assert sample_table(ScoreView()).rows == []


@pytest.mark.parametrize(
    ("first", "most", "rows", "known"),
    [
        (0, None, range(1, 121), 20),
        (0, 50, range(1, 51), 20),
        (100, 50, range(101, 121), 20),
        (115, 50, range(116, 121), 5),
        (120, 50, range(0), 0),
    ],
)
def test_samples_come_page_by_page(first: int, most: int | None, rows: range, known: int) -> None:
    def report(step: int) -> EvalEvent:
        samples = tuple({"row": f"{n}", "prediction": f"{step} {n}"} for n in range(1, 121))
        return EvalEvent(step=step, metrics={}, samples=samples, seq=step, stream="1-worker-1")

    table = sample_table(TrainingView([start(), report(2), report(3)]), first=first, most=most)
    assert table.rows == [[f"{n}", f"3 {n}"] for n in rows]
    assert (table.first, table.total) == (first, 120)
    assert [row.row for row in table.history] == [f"{n}" for n in rows[:known]]


def test_a_training_run_has_samples_too() -> None:
    samples = ({"prompt": "a", "prediction": "b"}, {"prompt": "c", "reference": "d"})
    evaluated = EvalEvent(
        step=2, metrics={"eval_loss": 1.0}, samples=samples, time_s=103, seq=50, stream="1-worker-1"
    )
    table = sample_table(TrainingView([start(), *steps(1, 3), evaluated]))
    assert (table.at, table.rows) == ("at step 2", [["a", "b", "–"], ["c", "–", "d"]])


def test_each_replica_has_the_columns_of_the_kind() -> None:
    members = member_table(score_view())
    assert members.columns == ["", "rows/s", "KV cache"]
    assert members.rows == [["replica 0", "20.0", "25.0 %"], ["replica 1", "10.0", "–"]]
    assert member_table(ended()).rows == [], "rates of the last seconds of an ended run"


def test_the_panel_of_a_score_run() -> None:
    state = snapshot(score_view(), RECORD, now_s=24.0)
    assert state.samples.rows[0][2] == "thai"
    assert (state.waterfall.total, state.waterfall.first) == ("2.4 s", "first rows")
    assert state.saves == "the finished rows"


def test_the_notebooks_table_escapes_what_a_model_wrote() -> None:
    seen = Elements()
    seen.feed(static_run.table_html(ended(), RECORD))
    assert seen.found <= {"table", "thead", "tbody", "tr", "th", "td", "p", "b"}
    assert seen.text.count(HOSTILE) == 3, "the column's name, the prompt and the reference"
    assert "<b>scores</b>" in seen.text


def test_a_terminal_of_80_columns_shows_answers_and_markup_as_it_is() -> None:
    live = printed(screen(score_view(), RECORD, now_s=24.0))
    assert "replica 1" in live
    assert "answer" in live
    assert "thai" in live
    text = printed(summary(ended(), RECORD, now_s=31.0))
    assert "[bold]no[/bold]" in text.replace("\n", "").replace(" ", "")
    assert max(map(len, text.splitlines())) <= 80
    assert "exact match" in text
    assert "Samples after 120 rows" in static_run.text(ended(), RECORD).replace(
        "samples", "Samples"
    )


def test_details_never_push_names_and_times_out_of_a_narrow_terminal() -> None:
    view = score_view(
        PhaseEvent(name="upload", state="begin", time_s=10.5, seq=900, stream="1-driver"),
        PhaseEvent(
            name="upload", state="end", time_s=10.7, seq=901, stream="1-driver", detail="x" * 90
        ),
    )
    lines = printed(summary(view, RECORD, now_s=31.0)).splitlines()
    [upload] = [line for line in lines if line.startswith("upload ")]
    assert "200 ms" in upload or "0.2 s" in upload


def test_samples_alone_are_no_line_of_a_log() -> None:
    event = EvalEvent(step=120, metrics={}, samples=(SAMPLE,))
    assert line_of(event) == ""
    whole = EvalEvent(step=2000, metrics={"exact_match": 0.5})
    assert line_of(whole, unit="rows") == "evaluation of 2,000 rows: exact_match 0.5"


def test_the_picture_draws_the_speed_of_the_kind() -> None:
    assert speed_title(speed_of([score_view()])) == "output tokens per second"
    assert speed_title(speed_of([TrainingView([start(), *steps(1, 3)])])) == "MFU, %"
    slow = TrainingView([start(), *steps(1, 3, mfu=None)])
    assert speed_title(speed_of([slow])) == "tokens per second"
    assert speed_title(speed_of([ScoreView()])) == "prompt tokens per second"
    assert static_run.render_png(score_view()).startswith(b"\x89PNG")


def test_the_picture_has_the_newest_samples_below_its_charts() -> None:
    lines = static_run.picture_lines(ended())
    assert lines[0] == "samples after 120 rows"
    assert [line.partition(":")[0] for line in lines[1:]] == ["prompt", "answer", "reference"]
    assert static_run.picture_lines(TrainingView([start(), *steps(1, 3)])) == []
    tall, flat = (png_size(view) for view in (ended(), TrainingView([start(), *steps(1, 3)])))
    assert flat == (1100, 320)
    assert tall[0] == 1100
    assert tall[1] > flat[1] + 10 * len(lines)


def test_a_sample_is_no_formula_and_may_have_letters_that_the_font_lacks() -> None:
    sample = {"prompt": "$x^{2$ 値段", "prediction": "\\frac{", "reference": "x" * 5000}
    event = EvalEvent(step=120, metrics={}, samples=(sample,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert png_size(score_view(event))[0] == 1100


def png_size(view: RunView) -> tuple[int, int]:
    """Width and height, from the first chunk of the file."""
    width, height = struct.unpack(">II", static_run.render_png(view, now_s=31.0)[16:24])
    return width, height
