"""The doctor's trial: a tiny model through the whole path, on a cluster that is gone afterwards."""

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
from typing import TYPE_CHECKING, Any

from llmops_kernel.cli.doctor_checks import Finding, fail, ok
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.runs.paths import HOME_ENV_VAR
from llmops_kernel.widgets import format as fmt

if TYPE_CHECKING:
    from llmops_kernel.api import Cluster, Run
    from llmops_kernel.runs.view import RunView

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
    """What the trial showed, part by part."""

    parts: list[Finding] = field(default_factory=list)
    view: RunView | None = None
    duration_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": all(part.level != "fail" for part in self.parts),
            "duration_s": self.duration_s,
            "parts": [part.as_dict() for part in self.parts],
            "summary": self.view.summary() if self.view else None,
        }


def train_tiny_model(*, on_part: OnPart, timeout_s: float) -> RunReport:
    """Up, submit, follow, look at the results, down; whatever happens, nothing stays behind."""
    report = RunReport()
    began_s = time.monotonic()

    def tell(part: Finding) -> None:
        report.parts.append(part)
        on_part(part)

    with _own_home() as home, _terminated_like_ctrl_c():
        cluster: Cluster | None = None
        try:
            cluster = _up(home, tell=tell)
            if cluster is not None:
                report.view = _train(cluster, home, tell=tell, timeout_s=timeout_s)
        finally:
            _down(cluster, tell=tell)
    report.duration_s = round(time.monotonic() - began_s, 3)
    return report


@contextmanager
def _own_home() -> Iterator[Path]:
    """A home folder of its own for clusters and runs; models stay in the user's cache."""
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
    """SIGTERM unwinds like Ctrl-C, so that the cluster goes with the doctor."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _up(home: Path, *, tell: OnPart) -> Cluster | None:
    from llmops_kernel import api

    template = home / "doctor.yaml"
    template.write_text(f"name: {CLUSTER}\nprovider: local\n")
    began_s = time.monotonic()
    try:
        cluster = api.up(str(template))
    except LLMOpsError as error:
        tell(fail("cluster", error.message, error.remedy))
        return None
    info = cluster.info
    took = fmt.seconds(time.monotonic() - began_s)
    tell(ok("cluster", f"up after {took}: {info.num_nodes} node(s), {info.num_cpus:g} CPUs"))
    return cluster


def _train(cluster: Cluster, home: Path, *, tell: OnPart, timeout_s: float) -> RunView | None:
    workspace = home / "workspace"
    write_workspace(workspace)
    try:
        run = cluster.submit(workspace / "doctor.train.yaml", workspace=workspace)
    except LLMOpsError as error:
        tell(fail("submit", error.message, error.remedy))
        return None
    tell(ok("submit", run.id))
    _wait(run, timeout_s=timeout_s)
    view: RunView = run.view
    for part in judge(view):
        tell(part)
    return view


def write_workspace(folder: Path) -> None:
    """A config and generated rows that a model can learn: numbers in words, and back."""
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
    while run.state not in TERMINAL and time.monotonic() < deadline_s:
        time.sleep(0.5)


def judge(view: RunView) -> list[Finding]:
    """Each part of the path that a good run must have shown."""
    return [_state(view), _steps(view), _figures(view), _evaluations(view), _output(view)]


def _state(view: RunView) -> Finding:
    if view.state == "SUCCEEDED":
        waited = fmt.seconds(view.submit_to_first_step_s)
        return ok("run", f"SUCCEEDED, first step {waited} after submit")
    if view.state not in TERMINAL:
        seen = f"still {view.state} when time ran out, at step {view.last_step or 0} of {STEPS}"
        return fail("run", seen, "the bars below show what was slow; --timeout 400 allows more")
    seen = f"{view.state}: {view.message or 'no reason was journalled'}"
    return fail("run", seen, view.remedy or "read the failure above")


def _steps(view: RunView) -> Finding:
    seen = [step.step for step in view.steps]
    losses = [step.loss for step in view.steps]
    if seen != list(range(1, STEPS + 1)):
        remedy = "rows of the journal are missing; report it with the run's folder"
        return fail("journal", f"{len(seen)} of {STEPS} steps arrived", remedy)
    if any(not fmt.known(loss) for loss in losses):
        return fail("journal", "a step has no finite loss", "report it; try parallelism=ddp")
    return ok("journal", f"{STEPS} steps, loss {fmt.loss(losses[0])} -> {fmt.loss(losses[-1])}")


def _figures(view: RunView) -> Finding:
    seen = (
        f"{fmt.rate(view.tokens_per_second)} tokens/s, step {fmt.step_time(view.step_time_s)},"
        f" MFU {fmt.percent(view.mfu)}"
    )
    if view.tokens_per_second is None or view.step_time_s is None:
        return fail("figures", seen, "steps carry no times; report it")
    return ok("figures", seen)


def _evaluations(view: RunView) -> Finding:
    losses = [event.metrics.get("eval_loss") for event in view.evals]
    seen = " -> ".join(fmt.loss(loss) for loss in losses) or "none"
    if len(losses) < 2 or not all(fmt.known(loss) for loss in losses):
        return fail("evaluation", f"held-out loss: {seen}", "two were asked for; report it")
    return ok("evaluation", f"held-out loss {seen}")


def _output(view: RunView) -> Finding:
    found = [output for output in view.outputs if Path(output.path).exists()]
    if not found:
        return fail("output", "no adapter was written", "look at the disk line above")
    return ok("output", f"{found[-1].what}, {fmt.byte_size(found[-1].size_bytes)}")


def _down(cluster: Cluster | None, *, tell: OnPart) -> None:
    """Also after a start that half succeeded; a second Ctrl-C must not leave a Ray behind."""
    from llmops_kernel.clusters.providers import all_clusters, provider_for

    with suppress(KeyboardInterrupt):
        began_s = time.monotonic()
        try:
            for info in all_clusters():  # Of the doctor's own home: never the user's.
                provider_for(info.name).down(info.name)
        except LLMOpsError as error:
            tell(fail("clean-up", error.message, error.remedy))
            return
        if cluster is not None:
            tell(ok("clean-up", f"cluster down after {fmt.seconds(time.monotonic() - began_s)}"))
