"""What the tables say is what the runs' views say, however the journals came about."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import CheckpointEvent, EndEvent, StepEvent
from llmops_kernel.services.query.ask import answered
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.services.run_table.stores import add
from tests.store import events


def ask(store: RunStore, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    with answered(sql, store=store, **options) as (answer, _):
        return list(answer.rows())


def notices(store: RunStore) -> tuple[str, ...]:
    with answered("SELECT 1", store=store) as (_, said):
        return said


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "home")


def write(store: RunStore, run_id: str, journal: list[Any], *, attempts: int = 1) -> None:
    """Write events with the numbers that they bring, each in the file of its stream."""
    record = RunRecord(run_id=run_id, name="made", created_s=1.0, cluster="local", config={})
    folder = store.create(record, config_yaml="")
    for number in range(1, attempts + 1):
        attempt = Attempt(
            number=number, submission_id="s", cluster="local", dashboard_url="", submitted_s=1.0
        )
        store.add_attempt(run_id, attempt)
    for event in journal:
        with (folder.journal / f"{event.stream}.jsonl").open("a") as file:
            file.write(event.model_dump_json(exclude_none=True) + "\n")


def restarted(noise: random.Random) -> list[Any]:
    """Return a journal of some attempts whose worker groups fail now and then."""
    journal: list[Any] = []
    now_s, saved, group = 100.0, 0, 0
    for attempt in range(1, noise.randint(1, 3) + 1):
        for _ in range(noise.randint(1, 3)):
            group += 1
            stream = f"{attempt}-worker-{group}"
            place = {"stream": stream, "attempt": attempt}
            peak = noise.choice((100.0, 200.0))
            journal.append(
                events.start(stream=stream, time_s=now_s, first_step=saved + 1, peak_flops=peak)
            )
            seq, last = 1, saved + noise.randint(0, 8)
            for number in range(saved + 1, last + 1):
                now_s, seq = now_s + 1, seq + 1
                mfu = noise.choice((None, 0.4, 0.9))
                journal.append(events.step(number, stream=stream, seq=seq, time_s=now_s, mfu=mfu))
                if noise.random() < 0.2:
                    saved, seq = number, seq + 1
                    journal.append(
                        CheckpointEvent(step=number, path="c", seq=seq, time_s=now_s, **place)
                    )
                if noise.random() < 0.3:
                    seq += 1
                    more = {"eval_loss": noise.random()}
                    journal.append(
                        events.evaluation(number, stream=stream, seq=seq, time_s=now_s, **more)
                    )
            now_s += 1
            if noise.random() < 0.7:
                seq = 100 + group
                journal.append(
                    events.restart(saved, time_s=now_s, seq=seq, stream=f"{attempt}-driver")
                )
        if noise.random() < 0.8:
            journal.append(events.end("FAILED", stream=f"{attempt}-driver", time_s=now_s))
    return journal


def test_the_tables_have_what_the_view_folds(store):
    noise = random.Random(5)
    for number in range(100):
        write(store, f"made-{number:02d}", restarted(noise), attempts=3)
    views = {run_id: store.view(run_id) for run_id in sorted(store.ids())}
    assert ask(store, "SELECT run, step, loss, mfu, seq FROM steps ORDER BY run, step") == [
        (run_id, e.step, e.loss, e.mfu, e.seq) for run_id, view in views.items() for e in view.steps
    ]
    for table in ("evaluations", "checkpoints"):
        shown = {
            run_id: view.evals if table == "evaluations" else view.checkpoints
            for run_id, view in views.items()
        }
        rows = ask(store, f"SELECT run, step, stream, seq FROM {table}")
        assert sorted(rows) == sorted(
            (run_id, e.step, e.stream, e.seq) for run_id, kept in shown.items() for e in kept
        )
    every = sum(isinstance(e, StepEvent) for run_id in views for e in store.events(run_id))
    assert ask(store, "SELECT count(*) FROM all_steps") == [(every,)]


def test_steps_that_were_written_twice_count_once(store):
    once = [events.start(), *events.steps(1, 4)]
    again = events.step(3, seq=9, loss=7.0)
    write(store, "twice", [*once, once[2], again])
    assert ask(store, "SELECT step, loss FROM steps ORDER BY step") == [
        (1, 1.0),
        (2, 0.5),
        (3, 7.0),
        (4, 0.25),
    ]
    assert ask(store, "SELECT seq FROM all_steps WHERE is_replaced") == [(4,)]


def test_nan_and_infinity_stay_and_unknown_is_null(store):
    add(store, "bad-1", loss=math.nan, eval_loss=math.inf)
    add(store, "bad-2", loss=None)
    rows = ask(store, "SELECT run, loss, mfu FROM steps ORDER BY run")
    assert math.isnan(rows[0][1])
    assert rows[0][2] is None
    assert rows[1] == ("bad-2", None, None)
    assert math.isnan(ask(store, "SELECT loss FROM runs WHERE run = 'bad-1'")[0][0])
    assert ask(store, "SELECT metrics['eval_loss'] FROM evaluations") == [(math.inf,)]


def test_a_run_has_its_record_its_notes_and_its_figures(store):
    config = {"optimizer": {"learning_rate": 3e-4}, "model": {"id": "tiny"}}
    add(store, "sft-1", config=config, eval_loss=0.25, user="ada", created_s=1.79e9)
    store.annotate("sft-1", tags=["best", "paper"], title="third try")
    columns = "name, state, tags, title, model, eval_loss, submitted_by, submitted::VARCHAR"
    assert ask(store, f"SELECT {columns} FROM runs") == [
        ("sft", "SUCCEEDED", ["best", "paper"], "third try", "tiny", 0.25, "ada",
         "2026-09-21 14:13:20")
    ]  # fmt: skip
    rate = ask(store, "SELECT (config->>'$.optimizer.learning_rate')::DOUBLE FROM runs")
    assert rate == [(3e-4,)]
    assert ask(store, "SELECT field, value, number FROM settings ORDER BY field") == [
        ("model.id", "tiny", None),
        ("optimizer.learning_rate", "0.0003", 3e-4),
    ]


def test_only_what_changed_is_read_again(store):
    for number in range(5):
        add(store, f"old-{number}")
    out = add(store, "live-1", state=None)
    assert ask(store, "SELECT count(*) FROM steps") == [(6,)]
    first = files(store)
    out.emit(StepEvent(step=2, loss=0.25))
    assert ask(store, "SELECT step, loss FROM steps WHERE run = 'live-1' ORDER BY step") == [
        (1, 0.5),
        (2, 0.25),
    ]
    now = files(store)
    assert now.items() > first.items()
    out.emit(EndEvent(state="SUCCEEDED"))
    assert ask(store, "SELECT state FROM runs WHERE run = 'live-1'") == [("SUCCEEDED",)]
    store.delete("old-3")
    assert ask(store, "SELECT count(DISTINCT run), count(*) FROM steps") == [(5, 6)]
    store.annotate("old-1", tags=["best"])
    assert ask(store, "SELECT run FROM runs WHERE 'best' IN tags") == [("old-1",)]
    assert files(store).items() & now.items() == files(store).items() & first.items()


def files(store: RunStore) -> dict[Path, int]:
    """Return when each file of the copy was written."""
    return {path: path.stat().st_mtime_ns for path in store.root.glob("query/*/s*/*.parquet")}


def test_many_changes_do_not_leave_many_files(store):
    for number in range(15):
        add(store, f"run-{number:02d}")
        assert ask(store, "SELECT count(*) FROM steps") == [(number + 1,)]
    assert ask(store, "SELECT count(DISTINCT run) FROM runs") == [(15,)]
    assert len(list(store.root.glob("query/*/s*"))) < 12


def test_lines_that_cannot_be_read_are_rows_of_their_own(store):
    write(store, "odd", [events.start(), *events.steps(1, 3), events.end("SUCCEEDED")])
    with (store.folder("odd").journal / "1-worker-1.jsonl").open("a") as file:
        file.write('{"stream":"1-worker-1","seq":9,"kind":"step","step":"four"}\n')
        file.write('{"stream":"1-worker-1","seq":10,"kind":"telepathy","thought":1}\n')
        file.write('{"stream":"1-worker-1","seq":11,"kind":"st')
    (store.root / "runs" / "broken").mkdir()
    (store.root / "runs" / "broken" / "record.json").write_text('{"run_id": 3')
    rows = ask(store, "SELECT run, file, line, text FROM unread ORDER BY run, line")
    assert rows[0][:3] == ("broken", "record.json", None)
    assert [row[:3] for row in rows[1:]] == [
        ("odd", "journal/1-worker-1.jsonl", line) for line in (5, 6, 7)
    ]
    assert "telepathy" in rows[2][3]
    assert ask(store, "SELECT count(*) FROM steps") == [(3,)]
    assert any("4 lines of 2 runs" in text for text in notices(store))


def test_the_copy_of_another_version_is_not_used(store):
    add(store, "run-1")
    assert ask(store, "SELECT count(*) FROM runs") == [(1,)]
    manifest = next(store.root.glob("query/*/manifest.json"))
    saved = json.loads(manifest.read_text())
    for change in ({"version": "0.0.1"}, {"segments": 3}, {"runs": {"run-1": ["x", "gone"]}}):
        manifest.write_text(json.dumps(saved | change))
        assert ask(store, "SELECT count(*) FROM runs") == [(1,)]
    manifest.write_text("{")
    assert ask(store, "SELECT count(*) FROM runs") == [(1,)]
    segment = next(store.root.glob("query/*/s*/runs.parquet"))
    segment.write_bytes(segment.read_bytes()[:-9])
    assert ask(store, "SELECT count(*) FROM runs") == [(1,)]


def test_without_a_place_for_the_copy_the_answer_comes_from_memory(store):
    add(store, "run-1")
    (store.root / "query").write_text("in the way")
    with answered("SELECT run, state FROM runs", store=store) as (answer, said):
        assert list(answer.rows()) == [("run-1", "SUCCEEDED")]
    assert any("in memory only" in text for text in said)


_LIMITED = """
import resource, sys
from pathlib import Path
from tests.services.query.test_copy import RunStore, answered
store = RunStore(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
with answered("SELECT count(*), count(DISTINCT run) FROM steps", store=store) as (answer, said):
    print(list(answer.rows()), said)
"""


def test_a_disk_that_refuses_costs_the_copy_and_not_the_answer(store):
    for number in range(30):
        add(store, f"run-{number}")
    limited = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(store.root), "1000"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[(30, 30)]" in limited.stdout
    assert "in memory only" in limited.stdout
    assert ask(store, "SELECT count(*) FROM steps") == [(30,)]
    assert notices(store) == ()


_ASKING = """
import sys
from pathlib import Path
from tests.services.query.test_copy import RunStore, ask
print(ask(RunStore(Path(sys.argv[1])), "SELECT count(*), count(DISTINCT run) FROM steps"))
"""


def asking(store: RunStore) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _ASKING, str(store.root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_queries_at_once_and_killed_ones_leave_a_right_copy(store):
    journal = [events.start(), *events.steps(1, 300), events.end("SUCCEEDED", seq=500)]
    for number in range(60):
        write(store, f"run-{number:02d}", journal)
    for delay_s in (0.5, 0.7, 0.9):
        killed = asking(store)
        time.sleep(delay_s)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    both = [asking(store), asking(store)]
    assert [each.communicate(timeout=60)[0].strip() for each in both] == ["[(18000, 60)]"] * 2
    assert not list(store.root.glob("query/*/.s*"))
