"""Listing, showing and comparing runs of a store, without a cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from llmops_kernel.cli.runs.submit import unseen
from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    OutputEvent,
    PhaseEvent,
    StallEvent,
    StartEvent,
    StepEvent,
    SystemEvent,
    WarningEvent,
)
from llmops_kernel.metrics.system import HostSample, StackGroup, WorkerSample
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs
from tests.cli.conftest import Llmops
from tests.messages import missing
from tests.server.runs import make_run


def _make_run(
    run_id: str,
    *,
    learning_rate: float,
    created_s: float,
    losses: list[float],
    odd: str = "",
) -> None:
    store = RunStore()
    record = RunRecord(
        run_id=run_id,
        name="toy",
        created_s=created_s,
        cluster="local",
        config={"name": "toy", "optimizer": {"learning_rate": learning_rate}, "seed": 1},
        code_hash="0123456789abcdef",
    )
    folder = store.create(record, config_yaml="name: toy\n")
    attempt = Attempt(
        number=1,
        submission_id=run_id,
        cluster="local",
        dashboard_url="http://127.0.0.1:1",
        submitted_s=created_s,
    )
    store.add_attempt(run_id, attempt)
    writer = JournalWriter([folder.journal], stream="1-worker-1", attempt=1)
    start = StartEvent(
        total_steps=len(losses), num_workers=1, global_batch_size=1, device="cpu", dtype="float32"
    )
    writer.emit(start)
    for number, loss in enumerate(losses, start=1):
        took = {"step_time_s": 0.1, "data_wait_s": 0.0, "compute_s": 0.1}
        writer.emit(StepEvent(step=number, loss=loss, tokens=10, tokens_per_second=100.0, **took))
    if odd:
        _emit_odd(writer, odd)
    writer.emit(EndEvent(state="SUCCEEDED", last_step=len(losses)))
    writer.close()


def _emit_odd(writer: JournalWriter, odd: str) -> None:
    writer.emit(PhaseEvent(name=odd, state="begin", detail=odd))
    writer.emit(PhaseEvent(name=odd, state="end"))
    writer.emit(EvalEvent(step=2, loss=1.0, metrics={f"eval_{odd}": 0.5}))
    writer.emit(OutputEvent(path=f"/out/{odd}", what=odd))
    writer.emit(WarningEvent(message=odd, remedy=odd))


@pytest.fixture
def two_runs(home: Path) -> None:
    now_s = time.time()
    _make_run("toy-1", learning_rate=1e-4, created_s=now_s - 60, losses=[3.0, 2.0])
    _make_run("toy-2", learning_rate=5e-5, created_s=now_s, losses=[3.0, 2.5, 2.25])


def test_an_empty_store_says_what_to_do(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("runs") == 0
    assert "llmops submit" in capsys.readouterr().out


@pytest.mark.usefixtures("two_runs")
def test_runs_are_listed_newest_first(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("runs") == 0
    shown = capsys.readouterr().out
    assert shown.index("toy-2") < shown.index("toy-1")
    assert "3 of 3" in shown
    assert "2.2500" in shown
    assert "–" in shown  # MFU was never journalled.
    assert llmops("runs", "--json", "--limit", "1") == 0
    (newest,) = json.loads(capsys.readouterr().out)
    assert newest["run_id"] == "toy-2"
    figures = {figure["key"]: figure["value"] for figure in newest["figures"]}
    assert figures["loss"] == 2.25
    assert figures["mfu"] is None


def test_runs_of_benchmarks_are_listed_with_all(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"run_id": "bench-1", "name": "n", "created_s": 1.0, "cluster": "local", "config": {}}
    RunStore().create(RunRecord.model_validate({**record, "hidden": True}), config_yaml="")
    assert llmops("runs") == 0
    assert "bench-1" not in capsys.readouterr().out
    assert llmops("runs", "--all") == 0
    assert "bench-1" in capsys.readouterr().out


@pytest.mark.usefixtures("two_runs")
def test_show_shows_figures_and_record(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("show", "last~1") == 0
    shown = capsys.readouterr().out
    assert "toy-1" in shown
    assert "2.0000" in shown
    assert "0123456789ab" in shown
    assert llmops("show", "toy-1", "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["state"] == "SUCCEEDED"
    assert reported["record"]["config"]["optimizer"]["learning_rate"] == 1e-4


@pytest.mark.usefixtures("two_runs")
def test_compare_shows_figures_and_only_what_differs(
    llmops: Llmops, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    png = tmp_path / "curves.png"
    assert llmops("compare", "toy-1", "toy-2", "--png", str(png)) == 0
    shown = capsys.readouterr().out
    assert "optimizer.learning_rate" in shown
    assert "5e-05" in shown
    assert "seed" not in shown
    places = [shown.index(part) for part in ("learning_rate", "progress", "loss", "tokens/s")]
    assert places == sorted(places)
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("two_runs")
def test_several_runs_are_compared_in_one_table_with_a_line_each(
    llmops: Llmops, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _make_run("toy-3", learning_rate=2e-4, created_s=time.time() + 1, losses=[3.0, 2.0, 1.5])
    assert llmops("compare", "toy-1", "toy-2", "toy-3", "--base", "toy-2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (base,) = (line for line in lines if "lr 5e-5 (baseline)" in line)
    (other,) = (line for line in lines if line.strip().startswith("lr 2e-4") and "1.5000" in line)
    assert "2.2500" in base
    assert "(-0.7500)" in other
    assert [line.split()[-1] for line in lines if line.startswith("lr ")] == [
        "toy-1",
        "toy-2",
        "toy-3",
    ]
    assert llmops("compare", "toy-1", "toy-2", "--base", "toy-3") != 0


@pytest.mark.usefixtures("two_runs")
def test_compare_prints_answers_side_by_side(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "spicy [/] {+ yes"
    for run_id, answer in (("toy-1", "cuisine thai"), ("toy-2", f"cuisine thai {odd}")):
        folder = RunStore().folder(run_id).journal
        writer = JournalWriter([folder], stream="1-worker-2", attempt=1)
        sample = {"row": "12", "prompt": "Tom Kha", "prediction": answer, "reference": "thai"}
        metrics = {"eval_loss": 0.5}
        writer.emit(EvalEvent(step=1, metrics=metrics, num_rows=1, duration_s=1, samples=(sample,)))
        writer.close()
    assert llmops("compare", "toy-1", "toy-2") == 0
    shown = capsys.readouterr().out
    assert "row 12: Tom Kha" in shown
    assert f": cuisine thai {{+{odd}+}}" in shown
    assert shown.index("eval loss") < shown.index("Tom Kha") < shown.index("tokens/s")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "command", [("show", "last"), ("compare", "toy-1", "toy-2"), ("wait", "last"), ("runs",)]
)
def test_text_of_a_run_is_not_markup(
    llmops: Llmops, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """A metric `rouge[/L]` would end a style that nobody began, and raise."""
    odd = "rouge[/L]"
    for number, run_id in enumerate(("toy-1", "toy-2")):
        _make_run(run_id, learning_rate=1e-4, created_s=1.0 + number, losses=[3.0, 2.0], odd=odd)
    assert llmops(*command) == 0
    assert command == ("runs",) or odd in capsys.readouterr().out


@pytest.mark.usefixtures("two_runs")
def test_diff_prints_the_changed_number(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("diff", "toy-1", "toy-2") == 0
    shown = capsys.readouterr().out
    assert "optimizer.learning_rate" in shown


@pytest.mark.usefixtures("two_runs")
def test_waiting_for_an_ended_run_returns_its_state(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("wait", "toy-1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "SUCCEEDED"
    assert llmops("wait", "toy-1") == 0
    assert "toy-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shown", "text", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\n", "a\nb\n", "b\n"),
        ("b\n", "a\nb\nc\n", "c\n"),  # Only the last lines had been shown.
        ("a\nb\n", "a\nb\n", ""),
    ],
)
def test_following_a_log_prints_each_line_once(shown: str, text: str, new: str) -> None:
    assert unseen(shown, text) == new


def test_a_star_and_a_note_are_kept_and_listed(
    two_runs: None, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("star", "toy-1") == 0
    assert llmops("note", "toy-1", "lower rate", "--title", "half the rate") == 0
    capsys.readouterr()
    assert llmops("runs", "--starred") == 0
    listed = capsys.readouterr().out
    assert "toy-1" in listed
    assert "toy-2" not in listed
    assert llmops("note", "toy-1") == 0
    shown = capsys.readouterr().out
    assert "half the rate" in shown
    assert "lower rate" in shown
    assert llmops("star", "toy-1", "--off") == 0
    assert list_runs(RunStore(), starred=True) == []


def test_rm_shows_asks_and_deletes(
    two_runs: None, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunStore().folder("toy-1").root
    assert llmops("rm", "toy-1") == 1  # Nobody is there to answer.
    assert folder.exists()
    # A long path is folded at the width of the table.
    assert str(folder) in "".join(capsys.readouterr().out.split())
    assert llmops("rm", "toy-1", "--yes") == 0
    assert not folder.exists()


def test_rm_takes_several_runs_and_deletes_all_or_none(
    two_runs: None, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("rm", "toy-1", "no-such-run", "--yes") == 1
    assert len(RunStore().ids()) == 2
    RunStore().add_attempt(
        "toy-2", RunStore().attempts("toy-2")[0].model_copy(update={"number": 2})
    )
    assert llmops("rm", "toy-1", "toy-2", "--yes") == 1
    assert len(RunStore().ids()) == 2
    _make_run("toy-3", learning_rate=1e-4, created_s=time.time(), losses=[1.0])
    capsys.readouterr()
    assert llmops("rm", "toy-1", "toy-3", "toy-1", "--yes") == 0
    assert "Run toy-1 is deleted.\nRun toy-3 is deleted.\n" in capsys.readouterr().out
    assert RunStore().ids() == ["toy-2"]


def test_stop_takes_several_runs(
    two_runs: None, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("stop", "toy-1", "toy-2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"Run {name} has already finished: SUCCEEDED." for name in ("toy-1", "toy-2")]
    assert llmops("stop", "toy-1", "nothing") == 1


def test_stop_without_a_run_stops_none_and_names_those_that_run(
    llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(RunStore(), "done-1", steps=1)
    assert llmops("stop") == 1
    assert "none is running" in capsys.readouterr().err
    make_run(RunStore(), "toy-1", steps=1, ended=None)
    assert llmops("stop") == 1
    message = capsys.readouterr().err
    assert "Not ended: toy-1" in message
    assert "llmops stop toy-1" in message
    assert RunStore().view("toy-1").state == "RUNNING"


def test_rm_refuses_a_run_that_is_on(
    two_runs: None, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = RunStore().attempts("toy-1")[0].model_copy(update={"number": 2})
    RunStore().add_attempt("toy-1", attempt)
    assert llmops("rm", "toy-1", "--yes") == 1
    assert "only a run that has ended" in capsys.readouterr().err
    assert RunStore().folder("toy-1").root.exists()


def test_leftovers_are_listed_then_removed(
    llmops: Llmops, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = home / "runs" / ".deleted-old-1a2b"
    left.mkdir(parents=True)
    (left / "weights").write_bytes(b"x" * 2000)
    assert llmops("gc", "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{left} (1.95 KiB, 1 file): a deletion of one of the runs was interrupted" in said
    assert "would be removed: 1 of 1, 1.95 KiB" in said
    assert left.exists()
    assert llmops("gc") == 0
    assert "removed: 1 of 1" in capsys.readouterr().out
    assert not left.exists()
    assert llmops("gc") == 0
    assert "removed: 0 of 0" in capsys.readouterr().out


def test_show_says_what_a_run_that_has_not_begun_waits_for(
    home: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    record = RunRecord(
        run_id="early-1", name="early", created_s=time.time(), cluster="local", config={}
    )
    folder = RunStore().create(record, config_yaml="name: early\n")
    journal = JournalWriter([folder.journal], stream="1-driver", attempt=1)
    journal.emit(PhaseEvent(name="runtime_env", state="begin", time_s=time.time() - 700))
    journal.close()
    assert llmops("show", "early-1") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Preparing the runtime environment… (11 min" in shown
    assert "the node gets the run's files" in shown


def test_a_stalled_run_shows_its_stacks_and_writes_them(
    two_runs: None, llmops: Llmops, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("stalled", "toy-2") == 0
    assert "no stall was seen" in capsys.readouterr().out
    writer = JournalWriter([RunStore().folder("toy-1").journal], stream="1-driver", attempt=1)
    writer.emit(
        SystemEvent(
            workers=(WorkerSample(rank=0, host="node-7", pid=41, memory_bytes=3 * 2**20),),
            hosts=(HostSample(host="node-7", load=1.5),),
        )
    )
    group = StackGroup(
        ranks=(0,),
        hosts=("node-7",),
        pids=(41,),
        state="code",
        place="train.py:12 (spin)",
        frames=("train.py:12 (spin)", "train.py:30 (main)"),
    )
    writer.emit(
        StallEvent(
            state="begin", step=2, waited_s=12.0, usual_s=0.5, message="Rank 0.", groups=(group,)
        )
    )
    writer.close()
    assert llmops("stalled", "toy-1", "--dump", str(tmp_path / "stacks.txt")) == 0
    text = capsys.readouterr().out
    assert not missing(text, "No step for 12 s after step 2", "train.py:30 (main)", "pid 41")
    assert "train.py:12 (spin)" in (tmp_path / "stacks.txt").read_text()
    assert llmops("show", "toy-1") == 0
    shown = capsys.readouterr().out
    assert not missing(shown, "Workers", "Hosts", "node-7", "3.00 MiB")
