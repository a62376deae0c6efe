"""`llmops samples`: the newest answers, and one row from its first to its last."""

from __future__ import annotations

import json

import pytest

from llmops_kernel import api
from llmops_kernel.cli.runs.commands import marked
from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.server.runs import make_run, worker


@pytest.fixture
def run(home) -> str:
    store = RunStore()
    make_run(store, "menu-1", steps=3)
    journal = worker(store, "menu-1")
    for step, answer in ((0, "the the cat"), (3, "Tom Kha [bold]soup[/bold]")):
        sample = {"row": "7", "prompt": "What?", "prediction": answer, "reference": "Tom Kha soup"}
        own = {"row": "prompt 1", "prompt": "Hi", "prediction": f"{step}" * 2_000}
        journal.emit(EvalEvent(step=step, metrics={}, samples=(sample, own)))
    journal.close()
    return "menu-1"


def test_the_newest_answer_of_each_row(llmops: Llmops, run: str, capsys):
    assert llmops("samples", run) == 0
    out = capsys.readouterr().out
    assert "Row 7, step 3" in out
    assert "Tom Kha [bold]soup[/bold]" in out
    assert "the the cat" not in out
    assert "3" * 80 in out.replace("\n", "")  # A pipe gets the whole text.
    assert "Row prompt 1, step 3" in out


def test_one_row_from_its_first_answer_to_its_last(llmops: Llmops, run: str, capsys):
    assert llmops("samples", run, "--row", "7") == 0
    out = capsys.readouterr().out
    assert out.index("step 0  ") < out.index("the the cat") < out.index("step 3  ")
    assert "prompt 1" not in out


def test_json_and_the_table_in_python(llmops: Llmops, run: str, capsys):
    assert llmops("samples", run, "--json", "--row", "7", "--step", "0") == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["step"], only["row"], only["prediction"]) == (0, "7", "the the cat")
    frame = api.attach(run).samples()
    assert list(frame.columns) == ["step", "row", "prompt", "prediction", "reference"]
    assert frame["step"].tolist() == [0, 3, 0, 3]
    assert api.attach(run).samples(7)["prediction"].tolist()[0] == "the the cat"
    assert api.attach(run).samples("none").empty


def test_what_is_not_there_is_said(llmops: Llmops, run: str, capsys):
    assert llmops("samples", run, "--step", "5") != 0
    assert "--step with one of 0, 3" in capsys.readouterr().err
    make_run(RunStore(), "plain-1", steps=1)
    assert llmops("samples", "plain-1") == 0
    assert "No evaluation has kept an answer." in capsys.readouterr().out
    assert list(api.attach("plain-1").samples().columns)[:2] == ["step", "row"]


def test_words_that_changed_are_marked():
    text = marked("a red  cat", "a blue  cat sat")
    assert text.plain == "a blue  cat sat"
    found = [text.plain[span.start : span.end] for span in text.spans if span.style]
    assert "".join(found).replace(" ", "") == "bluesat"
    assert marked(None, "x").spans == []
