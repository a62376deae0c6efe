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

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster, read_template, stop, up
from llmops_kernel.services.doctor.findings import Finding, fail, ok
from llmops_kernel.services.folders import HOME_ENV_VAR
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import from_config, submit
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from llmops_kernel.services.types import TrainingView

CLUSTER = "doctor"
STEPS = 20
_AGAIN = "run it again: llmops doctor --run"
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

    def report_part(part: Finding) -> None:
        report.parts.append(part)
        on_part(part)

    with _own_home() as home, _terminated_like_ctrl_c():
        backend = Backend()  # Of the temporary home: never the user's.
        cluster: Cluster | None = None
        try:
            cluster = _up(home, backend, report=report_part)
            if cluster is not None:
                report.view = _train(
                    cluster, home, backend, report=report_part, timeout_s=timeout_s
                )
        finally:
            _down(cluster, backend, report=report_part)
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

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if current_thread() is not main_thread():  # Only that one may set handlers.
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _up(home: Path, backend: Backend, *, report: OnPart) -> Cluster | None:
    template = home / "doctor.yaml"
    template.write_text(f"name: {CLUSTER}\nprovider: local\n")
    began_s = time.monotonic()
    try:
        loaded, path = read_template(template)
        info = up(loaded, path=path, backend=backend)
    except LLMOpsError as error:
        report(fail("cluster", error.message, error.remedy))
        return None
    took = fmt.seconds(time.monotonic() - began_s)
    nodes, cpus = counted(info.num_nodes, "node"), counted(info.num_cpus, "CPU")
    report(ok("cluster", f"ready after {took}: {nodes}, {cpus}"))
    return Cluster(info.name, provider=backend.provider_for(loaded), backend=backend)


def _train(
    cluster: Cluster, home: Path, backend: Backend, *, report: OnPart, timeout_s: float
) -> TrainingView | None:
    workspace = home / "workspace"
    write_workspace(workspace)
    try:
        wanted = from_config(workspace / "doctor.train.yaml", workspace=workspace)
        record = submit(cluster, wanted)
    except LLMOpsError as error:
        report(fail("submit", error.message, error.remedy))
        return None
    report(ok("submit", record.run_id))
    run = Run(backend, record.run_id, provider=cluster.provider)
    _wait(run, timeout_s=timeout_s)
    view = cast("TrainingView", run.view)
    for part in judge(view):
        report(part)
    return view


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


def _wait(run: Run, *, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not run.has_ended and time.monotonic() < deadline_s:
        time.sleep(0.5)


def judge(view: TrainingView) -> list[Finding]:
    """Check each part of a run: state, journal, figures, evaluations, output."""
    return [_state(view), _steps(view), _figures(view), _evaluations(view), _output(view)]


def _state(view: TrainingView) -> Finding:
    if view.state == "SUCCEEDED":
        waited = fmt.seconds(view.submit_to_first_step_s)
        return ok("run", f"SUCCEEDED, first step {waited} after submit")
    if not view.is_terminal:
        seen = f"still {view.state} when time ran out, at step {view.last_step or 0} of {STEPS}"
        return fail(
            "run", seen, "the phases below show what was slow; --timeout 400 allows more time"
        )
    seen = f"{view.state}: {view.message or 'no reason was reported'}"
    return fail("run", seen, view.remedy or "see the error above")


def _steps(view: TrainingView) -> Finding:
    seen = [step.step for step in view.steps]
    losses = [step.loss for step in view.steps]
    if seen != list(range(1, STEPS + 1)):
        remedy = "rows of the journal are missing: check the line `disk` above, then run it again"
        return fail("journal", f"{len(seen)} of {STEPS} steps were received", remedy)
    if any(not fmt.known(loss) for loss in losses):
        return fail("journal", "a step has no finite loss", _AGAIN)
    return ok("journal", f"{STEPS} steps, loss {fmt.loss(losses[0])} -> {fmt.loss(losses[-1])}")


def _figures(view: TrainingView) -> Finding:
    seen = (
        f"{fmt.rate(view.tokens_per_second)} tokens/s, step {fmt.step_time(view.step_time_s)},"
        f" MFU {fmt.percent(view.mfu)}"
    )
    if view.tokens_per_second is None or view.step_time_s is None:
        return fail("figures", seen, f"steps have no times; {_AGAIN}")
    return ok("figures", seen)


def _evaluations(view: TrainingView) -> Finding:
    losses = [event.metrics.get("eval_loss") for event in view.evals]
    seen = " -> ".join(fmt.loss(loss) for loss in losses) or "none"
    if len(losses) < 2 or not all(fmt.known(loss) for loss in losses):
        return fail("evaluation", f"held-out loss: {seen}", f"two were expected; {_AGAIN}")
    return ok("evaluation", f"held-out loss {seen}")


def _output(view: TrainingView) -> Finding:
    found = [output for output in view.outputs if Path(output.path).exists()]
    if not found:
        return fail("output", "no adapter was written", "check the line `disk` above")
    return ok("output", f"{found[-1].what}, {fmt.byte_size(found[-1].size_bytes)}")


def _down(cluster: Cluster | None, backend: Backend, *, report: OnPart) -> None:
    """Stop the cluster, also after a failed start; a second Ctrl-C does not prevent it."""
    with suppress(KeyboardInterrupt):
        began_s = time.monotonic()
        try:
            for info in backend.survey().infos:
                provider = backend.provider_named(info.provider)
                if provider is not None:
                    stop(Cluster(info.name, provider=provider, backend=backend), "down")
        except LLMOpsError as error:
            report(fail("clean-up", error.message, error.remedy))
            return
        if cluster is not None:
            report(
                ok("clean-up", f"cluster stopped after {fmt.seconds(time.monotonic() - began_s)}")
            )
