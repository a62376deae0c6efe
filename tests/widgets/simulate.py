"""Write a run's folder and journal as a real run would, without training anything.

Also a script: `python -m tests.widgets.simulate FOLDER --steps 200 --pace 20` makes a run
that grows in real time, for looking at the panel and the terminal.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmops_kernel.metrics.events import (
    PHASES,
    CheckpointEvent,
    EndEvent,
    EvalEvent,
    FailureEvent,
    OutputEvent,
    PhaseEvent,
    ProcessEvent,
    RestartEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunRecord

DETAILS = {
    "snapshot": "42 files, 310 KiB",
    "upload": "code 3f2a91c0 (12 KiB), library already there",
    "runtime_env": "reused",
    "workers": "2 workers",
    "model_load": "134.5 M parameters",
    "data": "600 rows, 61,204 tokens",
}
SECONDS = {
    "snapshot": 0.08,
    "upload": 0.21,
    "pending": 0.9,
    "runtime_env": 0.4,
    "driver": 1.9,
    "workers": 2.6,
    "process_group": 0.35,
    "model_load": 1.4,
    "data": 0.6,
    "first_step": 1.1,
}
CLIENT_PHASES = ("snapshot", "upload", "pending")
DRIVER_PHASES = ("runtime_env", "driver", "workers")
TRACEBACK = """Traceback (most recent call last):
  File "llmops_kernel/train/ray/worker.py", line 88, in train
    rows = [hooks.format_example(row) for row in source]
  File "menu_hooks.py", line 31, in format_example
    return {"prompt": row["name"], "completion": row["tags"]["cuisine"].upper()}
AttributeError: 'NoneType' object has no attribute 'upper'
"""


@dataclass
class FakeClock:
    """A clock that only goes on when told; `sleep` is its hand."""

    now_s: float = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Simulation:
    """One run; `events` yields after each step so that a test can stop anywhere."""

    folder: RunFolder
    name: str = "lora"
    run_id: str = "lora-260901-101500-a1b2"
    steps: int = 120
    step_time_s: float = 0.05
    eval_every: int = 40
    mfu: float | None = 0.412
    peak_flops: float | None = 1.2e12
    peak_memory_bytes: int | None = None
    learning_rate: float = 2e-4
    clock: Callable[[], float] = field(default_factory=FakeClock)
    sleep: Callable[[float], None] | None = None
    attempt: int = 1
    seed: int = 7

    def __post_init__(self) -> None:
        if self.sleep is None:
            assert isinstance(self.clock, FakeClock)
            self.sleep = self.clock.sleep
        self._random = random.Random(self.seed)
        if not self.folder.record.exists():
            self.folder.root.mkdir(parents=True, exist_ok=True)
            self.folder.record.write_text(self.record().model_dump_json())
        self.client, self.driver = self._writer("client"), self._writer("driver")
        self.worker = self._writer("worker-1")

    def record(self) -> RunRecord:
        return RunRecord(
            run_id=self.run_id,
            name=self.name,
            created_s=self.clock(),
            cluster="local",
            config={
                "model": {"id": "SmolLM2-135M-Instruct"},
                "method": {"type": "lora"},
                "parallelism": {"strategy": "ddp", "num_workers": 2},
                "optimizer": {"learning_rate": self.learning_rate},
            },
        )

    def _writer(self, who: str) -> JournalWriter:
        return JournalWriter(
            [self.folder.journal],
            stream=f"{self.attempt}-{who}",
            attempt=self.attempt,
            clock=self.clock,
        )

    def writer_of(self, phase: str) -> JournalWriter:
        if phase in CLIENT_PHASES:
            return self.client
        return self.driver if phase in DRIVER_PHASES else self.worker

    def phase(self, name: str, seconds: float | None = None) -> None:
        writer = self.writer_of(name)
        writer.emit(PhaseEvent(name=name, state="begin"))
        assert self.sleep is not None
        self.sleep(SECONDS.get(name, 0.5) if seconds is None else seconds)
        writer.emit(PhaseEvent(name=name, state="end", detail=DETAILS.get(name, "")))

    def start_up(self, until: str = PHASES[-1]) -> None:
        """All phases before `until`, which is begun and left open."""
        for name in PHASES:
            if name == until:
                self.writer_of(name).emit(PhaseEvent(name=name, state="begin"))
                return
            # The first run on a machine, and one whose model is not on disk.
            if name not in ("batch_search", "compile", "hub"):
                self.phase(name)

    def start(self, first_step: int = 1) -> None:
        self.worker.emit(
            StartEvent(
                total_steps=self.steps,
                first_step=first_step,
                num_workers=2,
                global_batch_size=8,
                device="Intel(R) Xeon(R)",
                dtype="float32",
                peak_flops=self.peak_flops,
                peak_source="measured: 1024x1024 matmul on this node" if self.peak_flops else "",
                num_params=134_515_008,
                num_trainable=921_600,
                num_rows=600,
                num_eval_rows=150,
                num_tokens=61_204,
            )
        )

    def processes(self, *, cold: str = "", private_bytes: int | None = None) -> None:
        """The driver is warm; rank 1 is cold for that reason, if there is one."""
        self.driver.emit(ProcessEvent(role="driver", warm=True))
        for rank, reason in enumerate(("", cold)):
            size = None if private_bytes is None else private_bytes + rank * 2**20
            reported = ProcessEvent(
                role="worker", rank=rank, warm=not reason, reason=reason, private_bytes=size
            )
            self.worker.emit(reported)

    def loss_at(self, step: int) -> float:
        noise = self._random.gauss(0, 0.06)
        return max(0.02, 0.35 + 2.4 * math.exp(-4 * step / self.steps) + noise)

    def step(self, step: int) -> None:
        assert self.sleep is not None
        jitter = 1 + self._random.uniform(-0.1, 0.1)
        time_s = SECONDS["first_step"] if step == 1 else self.step_time_s * jitter
        self.sleep(time_s)
        tokens = self._random.randint(700, 1100)
        self.worker.emit(
            StepEvent(
                step=step,
                loss=self.loss_at(step),
                learning_rate=self.learning_rate * (1 - (step - 1) / self.steps),
                grad_norm=self._random.uniform(0.4, 1.6),
                step_time_s=time_s,
                data_wait_s=time_s * 0.02,
                compute_s=time_s * 0.98,
                tokens=tokens,
                tokens_per_second=tokens / time_s,
                mfu=None if self.mfu is None else self.mfu / jitter,
                peak_memory_bytes=self.peak_memory_bytes,
                host_memory_bytes=int(1.4e9 + 1e6 * step),
            )
        )
        if step == 1:
            self.worker.emit(PhaseEvent(name=PHASES[-1], state="end"))

    def evaluate(self, step: int) -> None:
        self.phase("evaluate", 0.3)
        accuracy = 0.2 + 0.6 * step / self.steps
        metrics = {"eval_loss": self.loss_at(step) + 0.05, "field_accuracy": accuracy}
        self.worker.emit(EvalEvent(step=step, metrics=metrics, num_rows=150, duration_s=0.3))

    def train(self, first: int = 1, last: int | None = None) -> Iterator[int]:
        for step in range(first, (last or self.steps) + 1):
            self.step(step)
            if self.eval_every and step % self.eval_every == 0:
                self.evaluate(step)
                path = str(self.folder.checkpoints / f"step-{step}")
                self.worker.emit(CheckpointEvent(step=step, path=path, size_bytes=3_700_000))
            yield step

    def warn(self, message: str, remedy: str = "") -> None:
        self.driver.emit(WarningEvent(message=message, remedy=remedy))

    def restart(self, from_step: int, cause: str = "worker 1 was killed (signal 9)") -> None:
        self.driver.emit(RestartEvent(from_step=from_step, cause=cause, failures_left=2))
        self.worker = self._writer("worker-2")

    def fail(self) -> None:
        self.driver.emit(
            FailureEvent(
                error="HookError",
                message="format_example raised AttributeError: 'NoneType' object has no attribute"
                " 'upper' (row 17 of data/train.jsonl)",
                remedy="check rows whose cuisine is null, or return None to skip them",
                ranks=(0, 1),
                traceback=TRACEBACK,
                file="menu_hooks.py",
                line=31,
            )
        )
        self.driver.emit(EndEvent(state="FAILED"))

    def succeed(self) -> None:
        path = str(self.folder.output / "adapter")
        self.worker.emit(OutputEvent(path=path, what="adapter", size_bytes=3_702_344))
        self.driver.emit(EndEvent(state="SUCCEEDED", last_step=self.steps))

    def log(self, text: str) -> None:
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        with (self.folder.logs / f"driver-{self.attempt}.log").open("a") as file:
            file.write(text + "\n")

    def whole(self) -> None:
        """A run from submit to its end."""
        self.start_up()
        self.start()
        self.processes(private_bytes=300 * 2**20)
        self.evaluate(0)
        for step in self.train():
            self.log(f"step {step}/{self.steps}")
        self.succeed()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pace", type=float, default=20.0, help="steps a second")
    parser.add_argument("--run-id", default="lora-260901-101500-a1b2")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    run = Simulation(
        RunFolder(options.folder),
        run_id=options.run_id,
        steps=options.steps,
        step_time_s=1 / options.pace,
        clock=time.time,
        sleep=time.sleep,
    )
    if options.fail:
        run.start_up("data")
        run.fail()
    else:
        run.whole()


if __name__ == "__main__":
    main()
