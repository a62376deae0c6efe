"""What a log shows of the training, and which of Ray's lines it leaves out."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    QueueEvent,
    RestartEvent,
    WarningEvent,
)
from llmops_kernel.store.log_text import LogText
from llmops_kernel.store.run_lines import (
    RunLines,
    last_lines,
    printed_lines,
    visible_line,
    visible_text,
)
from tests.store.events import start, step

RAY = (
    "2026-11-23 03:58:23,297\tINFO job_manager.py:581 -- Runtime env is setting up.\n"
    "Running entrypoint for job tiny-1: python -m llmops_kernel.train.ray.entrypoint eJyFUNtugzAM\n"
)


def lines_of(*events: Event, every_s: float = 1.0) -> list[str]:
    now = [0.0]
    written: list[str] = []
    lines = RunLines(write=written.append, clock=lambda: now[0])
    for event in events:
        now[0] += every_s
        lines.take(event)
    assert all(line.startswith("[llmops] ") for line in written)
    return [line.split(" ", 2)[2] for line in written]


def test_a_line_a_step_evaluation_phase_and_warning() -> None:
    assert lines_of(
        PhaseEvent(name="model_load", state="begin", time_s=10),
        PhaseEvent(name="model_load", state="end", time_s=11.5, detail="134.5 M parameters"),
        start(total=20),
        step(7, loss=0.5, learning_rate=1e-4, grad_norm=1.25),
        EvalEvent(step=7, metrics={"eval_loss": 0.25}),
        CheckpointEvent(step=7, path="/out/step-7"),
        WarningEvent(message="The loss is flat.", remedy="raise the learning rate"),
        RestartEvent(from_step=7, cause="worker rank 1 was killed"),
        QueueEvent(state="begin", reason="needs 2 CPUs", place=1, length=2),
        QueueEvent(state="end"),
    ) == [
        "model load done in 1.50 s: 134.5 M parameters",
        "step 7 of 20, loss 0.5000, learning rate 0.0001, gradient norm 1.25, 1,000 tokens/s",
        "evaluation at 7: eval_loss 0.2500",
        "checkpoint of step 7: /out/step-7",
        "warning: The loss is flat. Try: raise the learning rate",
        "restart from the checkpoint of step 7: worker rank 1 was killed",
        "waiting for resources (place 1 of 2): needs 2 CPUs",
    ]


def test_many_steps_a_second_have_a_line_now_and_then_and_one_for_the_last() -> None:
    events = [start(total=100), *(step(number) for number in range(1, 101))]
    written = lines_of(*events, every_s=0.05)
    assert 20 <= len(written) <= 27
    assert written[-1].startswith("step 100 of 100")


def test_an_output_that_is_closed_does_not_end_the_run(tmp_path: Path) -> None:
    file = (tmp_path / "log").open("w")
    file.close()
    RunLines(write=file.write).take(step(1))


def test_rays_own_lines_are_left_out_and_everything_else_stays() -> None:
    worker = "\x1b[36m(RayTrainWorker pid=20861, ip=10.0.0.7)\x1b[0m "
    assert visible_line(f"{worker}[llmops] 10:00:00 step 1") == "10:00:00 step 1"
    assert visible_line(f"{worker}my own print") == f"{worker}my own print"
    assert visible_line(f"{worker}2026-11-23 03:58:23,297\tINFO config.py:1 -- x") is None
    warning = "2026-11-23 03:58:23,297\tWARNING worker.py:1 -- The node is low on memory."
    assert visible_line(warning) == warning
    assert visible_line("INFO of mine") == "INFO of mine"
    assert visible_text(f"{RAY}bar 1 %\rbar 2 %\nlast") == "bar 1 %\rbar 2 %\nlast"


def test_the_end_of_a_log_counts_the_lines_that_are_shown() -> None:
    log = LogText(f"first\nsecond\n{RAY * 3}third\n".encode())
    assert last_lines(log, 2, all_lines=False) == "second\nthird\n"
    assert last_lines(log, 2, all_lines=True).startswith("Running entrypoint")
    assert last_lines(log, 0, all_lines=False) == ""
    assert last_lines(LogText(b""), 5, all_lines=False) == ""


def test_what_a_script_has_printed_last(tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    path.write_text(
        f"{RAY}run script-1, attempt 1\n[llmops] 10:00:00 driver done in 0.2 s\n"
        "loss 2.5\n\n 0%|    | 0/2\r100%|####| 2/2\n\x1b[31mred\x1b[0m \x1b]52;c;eA==\x07 end\n"
        "(ScriptActor pid=12) from a worker\nSUCCEEDED\n"
    )
    assert printed_lines(LogText(path), 3) == [
        "100%|####| 2/2",
        "red ]52;c;eA== end",
        "(ScriptActor pid=12) from a worker",
    ]
