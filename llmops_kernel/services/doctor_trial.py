"""The doctor's trial run: a tiny model, on a cluster that is removed afterwards."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, cast

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster, read_template, stop, up
from llmops_kernel.services.doctor_checks import Finding, fail, ok
from llmops_kernel.services.folders import HOME_ENV_VAR
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import from_config, submit
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from llmops_kernel.services.types import TrainingView

CLUSTER = "doctor"
STEPS = 20
_CONFIG = f"""\
name: doctor
model: tiny-llama
data: {{train: train.jsonl, eval: eval.jsonl, max_length: 64}}
method: {{type: lora, r: 4}}
parallelism: {{strategy: zero2, num_workers: 1}}
optimizer: {{learning_rate: 0.01}}
training: {{micro_batch_size: 4, global_batch_size: 4, max_steps: {STEPS}, max_failures: 0}}
evaluation: {{at_start: true, at_end: true}}
"""
OnPart = Callable[[Finding], None]


@dataclass
class RunReport:
    """The findings of the trial run."""

    parts: list[Finding] = field(default_factory=list)
    view: TrainingView | None = None
    duration_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": all(part.level != "fail" for part in self.parts),
            "duration_s": self.duration_s,
            "parts": [part.as_dict() for part in self.parts],
            "summary": self.view.summary() if self.view else None,
        }


def train_tiny_model(*, on_part: OnPart, timeout_s: float) -> RunReport:
    """Start a cluster, submit, wait, check the results, stop the cluster. Leaves nothing behind."""
    report = RunReport()
    began_s = time.monotonic()

    def add(part: Finding) -> None:
        report.parts.append(part)
        on_part(part)

    with _own_home() as home, _terminated_like_ctrl_c():
        backend = Backend()  # Of the temporary home: never the user's.
        try:
            report.view = _train(home, backend, timeout_s=timeout_s)
            add(judge(report.view))
        except LLMOpsError as error:
            add(fail("run", error.message, error.remedy))
        finally:
            with suppress(KeyboardInterrupt):  # A second Ctrl-C does not prevent it.
                try:
                    _down(backend)
                except LLMOpsError as error:
                    add(fail("clean-up", error.message, error.remedy))
    report.duration_s = round(time.monotonic() - began_s, 3)
    return report


@contextmanager
def _own_home() -> Iterator[Path]:
    """Use a temporary home folder for clusters and runs; models stay in the user's cache."""
    before = os.environ.get(HOME_ENV_VAR)
    # Short, and in the temp folder: Ray's socket paths below it must not exceed 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="llmops-doctor-"))
    os.environ[HOME_ENV_VAR] = str(home)
    try:
        yield home
    finally:
        if before is None:
            os.environ.pop(HOME_ENV_VAR, None)
        else:
            os.environ[HOME_ENV_VAR] = before
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the cluster is stopped as well."""
    if current_thread() is not main_thread():  # Only that one may set handlers.
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _train(home: Path, backend: Backend, *, timeout_s: float) -> TrainingView:
    """Train on a cluster of its own. Raises LLMOpsError."""
    (home / "doctor.yaml").write_text(f"name: {CLUSTER}\nprovider: local\n")
    template, path = read_template(home / "doctor.yaml")
    info = up(template, path=path, backend=backend)
    cluster = Cluster(info.name, provider=backend.provider_for(template), backend=backend)
    workspace = home / "workspace"
    write_workspace(workspace)
    submission = from_config(workspace / "doctor.train.yaml", workspace=workspace)
    record = submit(cluster, submission)
    run = Run(backend, record.run_id, provider=cluster.provider)
    deadline_s = time.monotonic() + timeout_s
    while not run.has_ended and time.monotonic() < deadline_s:
        time.sleep(0.5)
    return cast("TrainingView", run.view)


def write_workspace(folder: Path) -> None:
    """Write a config and generated rows that a model can learn: numbers in words."""
    folder.mkdir()
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rng = random.Random(7)
    for name, count in (("train.jsonl", 4 * STEPS), ("eval.jsonl", 8)):
        numbers = [[rng.randrange(10) for _ in range(3)] for _ in range(count)]
        rows = ({"text": f"{n} = {' '.join(words[digit] for digit in n)}"} for n in numbers)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "doctor.train.yaml").write_text(_CONFIG)


def judge(view: TrainingView) -> Finding:
    """Say how a run went: its state, and whether steps, evaluations and output are all there."""
    if not view.is_terminal:
        seen = f"still {view.state} when time ran out, at step {view.last_step or 0} of {STEPS}"
        remedy = "the phases below show what was slow; --timeout 400 allows more time"
        return fail("run", seen, remedy)
    if view.state != "SUCCEEDED":
        seen = f"{view.state}: {view.message or 'no reason was reported'}"
        return fail("run", seen, view.remedy or "see the error above")
    losses = [step.loss for step in view.steps]
    missing = {
        f"{len(losses)} of {STEPS} steps were received": len(losses) != STEPS,
        "a step has no finite loss": not all(map(fmt.known, losses)),
        f"{len(view.evals)} of 2 evaluations were received": len(view.evals) != 2,
        "no adapter was written": not any(Path(one.path).exists() for one in view.outputs),
    }
    if problems := [text for text, is_so in missing.items() if is_so]:
        remedy = "check the line `disk` above, then run it again: llmops doctor --run"
        return fail("run", "; ".join(problems), remedy)
    return ok(
        "run",
        f"SUCCEEDED, first step {fmt.seconds(view.submit_to_first_step_s)} after submit, loss"
        f" {fmt.loss(losses[0])} -> {fmt.loss(losses[-1])}, {fmt.rate(view.tokens_per_second)}"
        " tokens/s",
    )


def _down(backend: Backend) -> None:
    """Stop the cluster, also after a failed start."""
    for info in backend.survey().infos:
        if (provider := backend.provider_named(info.provider)) is not None:
            stop(Cluster(info.name, provider=provider, backend=backend), "down")
