"""10,000 runs with 1,000 steps each: ten questions in SQL, and how long the copy takes to make.

python -m tests.benchmarks.query --runs 10000 --steps 1000 --store FOLDER
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EndEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    ProcessEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.services.query.ask import answered
from llmops_kernel.store.files import write_whole
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.store.store import RunStore

QUESTIONS = {
    "best run by held-out loss per tag": """
        SELECT tag, arg_min(run, eval_loss) AS best, min(eval_loss) AS eval_loss
        FROM (SELECT run, unnest(tags) AS tag, eval_loss FROM runs WHERE state = 'SUCCEEDED')
        GROUP BY tag ORDER BY eval_loss""",
    "median MFU by model over weeks": """
        SELECT model, date_trunc('week', submitted) AS week, median(s.mfu) AS mfu, count(*) AS steps
        FROM steps AS s JOIN runs USING (run) WHERE NOT is_first GROUP BY ALL ORDER BY ALL""",
    "runs whose loss rose in the last 100 steps": """
        SELECT s.run, regr_slope(s.loss, s.step) AS slope FROM steps AS s JOIN runs AS r USING (run)
        WHERE s.step > r.last_step - 100 GROUP BY s.run HAVING slope > 0
        ORDER BY slope DESC LIMIT 20""",
    "slowest phase of cold starts": """
        SELECT p.phase, median(p.duration_s) AS median_s, max(p.duration_s) AS most_s
        FROM phases AS p JOIN runs USING (run)
        WHERE is_startup AND cold_processes > 0 GROUP BY p.phase ORDER BY median_s DESC""",
    "runs that diverged, and where": """
        SELECT run, min(step) AS first_nan FROM steps WHERE isnan(loss) GROUP BY run
        ORDER BY first_nan LIMIT 20""",
    "share of time that waits for data, by learning rate": """
        SELECT number AS rate, sum(data_wait_s) / sum(step_time_s) AS share
        FROM steps JOIN settings USING (run) WHERE field = 'optimizer.learning_rate'
        GROUP BY rate ORDER BY share DESC""",
    "steps slower than 1.2 times their run's median": """
        WITH usual AS (SELECT run, median(step_time_s) AS usual_s FROM steps GROUP BY run)
        SELECT run, count(*) AS slow FROM steps JOIN usual USING (run)
        WHERE step_time_s > 1.2 * usual_s AND NOT is_first
        GROUP BY run ORDER BY slow DESC LIMIT 20""",
    "loss of one run, every tenth step": """
        SELECT step, loss, learning_rate FROM steps WHERE run = (SELECT max(run) FROM runs)
        AND step % 10 = 0 ORDER BY step""",
    "tokens by day and cluster": """
        SELECT r.cluster, s.time::DATE AS day, sum(s.tokens) AS tokens
        FROM steps AS s JOIN runs AS r USING (run) GROUP BY ALL ORDER BY tokens DESC LIMIT 20""",
    "warnings that failed runs have and others have not": """
        SELECT w.message, count_if(state = 'FAILED') AS failed, count(*) AS runs
        FROM warnings AS w JOIN runs AS r USING (run) GROUP BY w.message ORDER BY failed DESC""",
}
_BEGIN_S = 1.79e9
_RATES, _MODELS = (1e-4, 3e-4, 1e-3, 3e-3), ("SmolLM2-135M", "Llama-3.2-1B", "Qwen3-8B")
_PHASES = ("process_group", "data", "model_load", "engine", "first_step")


def step_line(number: int, begin_s: float, noise: random.Random, loss: float | str) -> bytes:
    """Return a step as the journal has it; formatting is ten times as fast as a model's dump."""
    wait_s, passes_s = noise.random() / 50, 0.2 + noise.random() / 10
    mfu = noise.random() / 2
    quoted = f'"{loss}"' if isinstance(loss, str) else repr(loss)
    return (
        f'{{"stream":"1-worker-1","seq":{number + 20},"time_s":{begin_s + number!r},"attempt":1,'
        f'"kind":"step","step":{number},"epoch":{number / 500!r},"loss":{quoted},'
        f'"learning_rate":0.0002,"grad_norm":{noise.random()!r},'
        f'"step_time_s":{wait_s + passes_s!r},"data_wait_s":{wait_s!r},"compute_s":{passes_s!r},'
        f'"passes_s":{passes_s!r},"communication_s":0.0,"optimizer_s":0.01,"offload_s":0.0,'
        f'"between_s":0.001,"tokens":{noise.randrange(3000, 4096)},"tokens_per_second":12000.5,'
        f'"flops":1797980160.0,"mfu":{mfu!r},"mfu_palm":{mfu * 1.1!r},"hfu":{mfu * 1.2!r},'
        f'"recomputed":0.001,"peak_memory_bytes":60129542144,"host_memory_bytes":603086848}}\n'
    ).encode()


def make(store: RunStore, number: int, *, steps: int, noise: random.Random) -> None:
    """Write a run: events by the journal's writer, its steps as the same lines."""
    begin_s = _BEGIN_S + 900 * number
    rate, name = noise.choice(_RATES), f"sweep-{number // 250}"
    sections = {f"s{i}": {f"key_{j}": j for j in range(10)} for i in range(6)}
    config = {
        **sections,
        "optimizer": {"learning_rate": rate},
        "model": {"id": noise.choice(_MODELS)},
        "method": {"type": "lora", "r": noise.choice((4, 8, 16))},
    }
    record = RunRecord(
        run_id=f"{name}-{number:05d}", name=name, created_s=begin_s, cluster="local", config=config
    )
    root = store.root / "runs" / record.run_id
    (root / "journal").mkdir(parents=True)
    (root / "record.json").write_text(record.model_dump_json())
    tags = RunNotes(tags=tuple(noise.sample(("best", "paper", "ablation", "wide"), 1)))
    (root / "notes.json").write_text(tags.model_dump_json())
    _write(root / "journal", "1-client", [_phase("upload", s, begin_s) for s in ("begin", "end")])
    worker = root / "journal" / "1-worker-1.jsonl"
    is_cold, is_bad = noise.random() < 0.2, noise.random() < 0.02
    _write(root / "journal", "1-worker-1", _before(begin_s, steps, is_cold=is_cold, noise=noise))
    with worker.open("ab") as file:
        for step in range(1, steps + 1):
            loss = 2.0 / (1 + rate * step) + noise.random() / 5
            nan = is_bad and step > steps * 0.9
            file.write(step_line(step, begin_s + 30, noise, "NaN" if nan else loss))
    _write(root / "journal", "1-worker-1", _after(begin_s + steps, steps, is_bad, noise))


def _write(folder: Path, stream: str, events: list[Event]) -> None:
    out = JournalWriter([folder], stream=stream, attempt=1)
    for event in events:
        out.emit(event)
    out.close()


def _phase(name: str, state: str, begin_s: float) -> PhaseEvent:
    return PhaseEvent(name=name, state=state, time_s=begin_s + (state == "end"))


def _before(begin_s: float, steps: int, *, is_cold: bool, noise: random.Random) -> list[Event]:
    spans = [(name, state) for name in _PHASES[:-1] for state in ("begin", "end")]
    return [
        ProcessEvent(role="worker", rank=0, warm=not is_cold, reason="", time_s=begin_s),
        *(_phase(name, state, begin_s + noise.random()) for name, state in spans),
        StartEvent(
            total_steps=steps,
            num_workers=1,
            global_batch_size=8,
            device="NVIDIA H200",
            dtype="bfloat16",
            peak_flops=989e12,
            time_s=begin_s + 20,
        ),
        *(_phase("first_step", state, begin_s + 25) for state in ("begin", "end")),
        *(WarningEvent(message=f"warning {noise.randrange(9)}", time_s=begin_s) for _ in range(8)),
    ]


def _after(end_s: float, steps: int, is_bad: bool, noise: random.Random) -> list[Event]:
    metrics = {"eval_loss": noise.random(), "accuracy": noise.random()}
    return [
        EvalEvent(step=steps, metrics=metrics, num_rows=64, duration_s=2.0, time_s=end_s),
        CheckpointEvent(step=steps, path="checkpoints/1", size_bytes=10**9, time_s=end_s),
        EndEvent(state="FAILED" if is_bad else "SUCCEEDED", last_step=steps, time_s=end_s + 1),
    ]


def check_line() -> None:
    """Show that the formatted line is what the writer writes."""
    line = step_line(7, _BEGIN_S, random.Random(1), 0.5)
    written = StepEvent.model_validate_json(line).model_dump_json(exclude_none=True)
    if written.encode() + b"\n" != line:
        raise SystemExit(f"the lines differ:\n{written}\n{line.decode()}")


def generate(root: Path, *, runs: int, steps: int) -> None:
    check_line()
    store, noise = RunStore(root), random.Random(7)
    for number in range(runs):
        make(store, number, steps=steps, noise=noise)
        if number % 1000 == 999:
            print(f"{number + 1:,} of {runs:,} runs written", flush=True)
    write_whole(root / "shape", f"{runs} {steps}".encode())


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def ask_here(store: RunStore, sql: str) -> tuple[float, float, float, int]:
    """Return seconds of a query with opening the copy, of the SQL alone, its processor's, rows."""
    begun_s = time.perf_counter()
    with answered("SELECT 1", store=store) as (first, _):
        db, _ = first._db, list(first.rows())
        opened_s, cpu_s = time.perf_counter(), time.process_time()
        rows = db.execute(sql).fetchall()
        done_s, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    return done_s - begun_s, done_s - opened_s, cpu_s, len(rows)


def command_s(root: Path, sql: str) -> tuple[float, float]:
    """Return seconds of `llmops query` in a fresh process, by the clock and of the processor."""
    begun_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "llmops_kernel", "query", sql],
        env={**os.environ, "LLMOPS_HOME": str(root)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun_s, cpu_s


def measure(root: Path, *, rounds: int) -> None:
    store = RunStore(root)
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    with answered("SELECT count(*) FROM steps", store=store, report=print) as (answer, notices):
        steps = next(answer.rows())[0]
    took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    print(f"first query: {took_s:.1f} s (processor {cpu_s:.1f} s), {steps:,} steps {notices}")
    journals, copied = folder_bytes(root / "runs"), folder_bytes(root / "query")
    print(f"journals and records {journals / 2**20:,.0f} MiB, copy {copied / 2**20:,.0f} MiB")
    for name, sql in QUESTIONS.items():
        took = [ask_here(store, sql) for _ in range(rounds)]
        whole = [command_s(root, sql) for _ in range(rounds)]
        here_s, sql_s, cpu_s, rows = (statistics.median(each) for each in zip(*took, strict=True))
        wall_s, command_cpu_s = (statistics.median(each) for each in zip(*whole, strict=True))
        print(
            f"{name:52} SQL {sql_s:.2f} s (processor {cpu_s:.2f} s), in a notebook {here_s:.2f} s,"
            f" command {wall_s:.2f} s (processor {command_cpu_s:.2f} s), {rows:,.0f} rows,"
            f" load {os.getloadavg()[0]:.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path, help="made if it is empty, and kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-many-") as folder:
        root = arguments.store or Path(folder)
        if not (root / "shape").exists():
            generate(root, runs=arguments.runs, steps=arguments.steps)
        measure(root, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
