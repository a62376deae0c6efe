"""Random trainings with little memory: none may end by it while a setting fits.

`python -m tests.soak.out_of_memory --configs 200 --seed 1` trains each config of the tiny model in
forks. Odd seeds limit their address space (RLIMIT_AS) while it trains, so that allocations fail for
real in steps, evaluations and checkpoints; even seeds put them into a control group of little
memory from their start, and the kernel kills them (needs root and cgroup v1, else all are as odd).
What decides the next setting, what is saved and where the next fork resumes is the product's; Ray,
which starts the next worker group there, is not in it (tests/end_to_end/test_out_of_memory.py does
that). One worker, ddp, no dropout.

A fork that a library of C ends for want of memory (libgomp, an exception that nothing catches) is
restarted with the same setting, `training.max_failures` times in all, as Ray's worker groups are.

A config passes if it ends with all steps once, as read from its journal, and the losses of a
training without a limit that had its last setting from the start; or if that setting, the last of
all, does not fit from the start either.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "4000")  # As in clusters of ours: beside other load, too.
os.environ.setdefault("LLMOPS_PEAK_TFLOPS", "10")

from llmops_kernel.config.less_memory import changed, next_setting
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.checkpoint import latest
from llmops_kernel.driver.nodes import oom_kills
from llmops_kernel.metrics.events import RestartEvent
from llmops_kernel.models.catalogue import prepare
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.failures import describe

TOLERANCE = 1e-5
"""Relative: float32 adds up the rows of a step in another order."""
CHILD_S = 240.0
DIED = "Killed"
"""The error of a fork that gave no answer."""


def random_config(draw: random.Random) -> TrainingConfig:
    micro, passes = draw.choice([2, 3, 4, 6, 8, 12, 16]), draw.choice([1, 1, 2])
    is_streamed = draw.random() < 0.2
    values: dict[str, Any] = {
        "model": "tiny-llama",
        "seed": draw.randrange(1000),
        "data": {
            "train": "rows.jsonl",
            "max_length": draw.choice([256, 512]),
            "packing": not is_streamed and draw.random() < 0.2,
            "streaming": is_streamed,
            "shuffle": draw.random() < 0.8,
        },
        "method": draw.choice(["full", {"type": "lora", "lora_dropout": 0.0}]),
        "parallelism": {
            "strategy": "ddp",
            "use_gpu": False,
            "gradient_checkpointing": draw.random() < 0.2,
        },
        "optimizer": {"learning_rate": draw.choice([1e-4, 1e-3])},
        "training": {
            "micro_batch_size": micro,
            "global_batch_size": micro * passes,
            "max_steps": draw.randrange(3, 7),
        },
        "performance": draw.choice(["auto", "off"]),
        "checkpoint": {"every_steps": draw.choice([None, 2])},
        "hooks": "hooks.py",
    }
    if draw.random() < 0.6:
        values["data"]["eval"] = "eval.jsonl"
        own = draw.choice([None, 4, 32])
        values["evaluation"] = {"every_steps": draw.choice([None, 2]), "micro_batch_size": own}
    return TrainingConfig.model_validate(values)


def write_rows(folder: Path, draw: random.Random) -> None:
    for name, count in (("rows", 200), ("eval", 40)):
        rows = (
            {
                "text": " ".join(
                    f"{draw.randrange(10_000)} of" for _ in range(draw.randrange(5, 250))
                )
            }
            for _ in range(count)
        )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# --- Trainings in forks ---

HOOKS = """\
import os
import resource
import threading
from transformers import TrainerCallback


start = threading.Thread.start


def start_with_memory(thread):
    # A thread that finds none when it starts lets CPython's Thread.start wait for ever.
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        start(thread)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


threading.Thread.start = start_with_memory


class Limited(TrainerCallback):
    def on_train_begin(self, *args, **kwargs):
        limit = int(os.environ.get("SOAK_ADDRESS_SPACE", 0))
        if limit:
            pages = int(open("/proc/self/statm").read().split()[0])
            used = pages * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.RLIM_INFINITY))

    def on_train_end(self, *args, **kwargs):
        # A thread's stack alone may be more than the limit, and loading the result starts some.
        unlimited = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_AS, (unlimited, unlimited))


def callbacks():
    return [Limited()]
"""


@dataclass(frozen=True)
class Limit:
    """Bytes that a training may take besides what its process has before."""

    size_bytes: int
    group: Path | None = None
    """Control group whose limit it is; None: of the address space."""

    def apply(self) -> None:
        """Limit this process, a fork."""
        if self.group is None:
            os.environ["SOAK_ADDRESS_SPACE"] = str(self.size_bytes)
        else:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def control_group(size_bytes: int) -> Iterator[Path | None]:
    """Make a control group of so much memory; None where that is not allowed."""
    group = Path("/sys/fs/cgroup/memory") / f"llmops-soak-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(str(size_bytes))
        yield group
    finally:
        (group / "memory.force_empty").write_text("0")
        group.rmdir()


def train(config: TrainingConfig, folder: Path, number: int, limit: Limit | None) -> dict[str, Any]:
    """Train in a fork; return its failure, or {}."""
    fork = get_context("fork")
    here, there = fork.Pipe()
    before = oom_kills()
    child = fork.Process(target=_child, args=(config, folder, number, limit, there))
    child.start()
    there.close()
    answer: dict[str, Any] = {"error": DIED, "message": "no answer", "out_of_memory": False}
    if here.poll(CHILD_S):
        try:
            answer = here.recv()
        except EOFError:
            child.join()
            answer["message"] = f"exit code {child.exitcode}: {_last_line(folder, number)}"
            answer["out_of_memory"] = child.exitcode == -9 and oom_kills() != before
            answer["phase"] = _open_phase(folder)
    child.kill()
    child.join()
    return answer


def _last_line(folder: Path, number: int) -> str:
    """Return what a fork that ended without an answer has printed last."""
    lines = (folder / f"{number}.log").read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")


def _open_phase(folder: Path) -> str:
    """Return the phase in which the newest training was killed."""
    view = TrainingView(FolderTail(folder / "journal").read())
    return next((phase.name for phase in reversed(view.phases()) if phase.end_s is None), "")


def _child(
    config: TrainingConfig, folder: Path, number: int, limit: Limit | None, answer: Any
) -> None:
    with (folder / f"{number}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.dump_traceback_later(CHILD_S - 5)
    threading.stack_size(2**18)  # 8 MB otherwise, which an address space counts.
    journal = JournalWriter([folder / "journal"], stream=f"1-worker-{number}", attempt=1)
    workspace = folder.parent
    context = WorkerContext(run_id="soak", folder=folder, workspace=workspace, journal=journal)
    from llmops_kernel.train import loop

    if limit is not None:
        limit.apply()
    try:
        loop.train(config, context)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        failure = describe(error, rank=0, workspace=workspace, config=config)
        where = {"step": context.step, "phase": context.in_phase}
        answer.send({**failure.model_dump(mode="json"), **where})
    else:
        answer.send({})
    os._exit(0)


def adapted(
    config: TrainingConfig, folder: Path, limit: Limit
) -> tuple[TrainingConfig, Any, Counter[str]]:
    """Train until a setting fits; return the last one, its failure ({}: none), and the phases in
    which memory ran out.
    """
    controller = JournalWriter([folder / "journal"], stream="1-controller", attempt=1)
    places: Counter[str] = Counter()
    restarts = config.training.max_failures
    for number in range(1, 30):
        failure = train(config, folder, number, limit)
        newest = latest(folder / "checkpoints")
        step = newest.step if newest else 0
        if failure.get("error") == DIED and not failure["out_of_memory"] and restarts:
            restarts -= 1
            places["died"] += 1
            controller.emit(RestartEvent(from_step=step, cause=failure["message"]))
            continue
        if not failure.get("out_of_memory"):
            return config, failure, places
        places[failure["phase"] or "step"] += 1
        changes = next_setting(config, on_gpu=False, in_evaluation=failure["phase"] == "evaluate")
        if changes is None:
            return config, failure, places
        controller.emit(RestartEvent(from_step=step, cause="out of memory", changes=changes))
        config = changed(config, changes)
    raise AssertionError("the settings have no end")


# --- One config ---


def check(seed: int, say: Callable[[str], None]) -> str:
    """Return `fits`, `adapted`, `nothing fits` or what is wrong."""
    draw = random.Random(seed)
    config = random_config(draw)
    is_killed = seed % 2 == 0
    size_bytes = int(draw.uniform(190e6, 300e6) if is_killed else draw.uniform(10e6, 60e6))
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="llmops-oom-"))
        group = stack.enter_context(control_group(size_bytes)) if is_killed else None
        limit = Limit(size_bytes, group)
        workspace = Path(root)
        write_rows(workspace, draw)
        (workspace / "hooks.py").write_text(HOOKS)
        run, whole = workspace / "run", workspace / "whole"
        for folder in (run, whole):
            folder.mkdir()
        last, failure, places = adapted(config, run, limit)
        kind = "kernel" if group else "address space"
        say(f"seed {seed}: {size_bytes / 1e6:.0f} MB, {kind}, {dict(places)}")
        if failure.get("out_of_memory"):
            alone = workspace / "alone"
            alone.mkdir()
            again = train(last, alone, 1, limit)
            return "nothing fits" if again.get("out_of_memory") else "a setting would have fitted"
        if failure:
            return f"{failure['error']}: {failure['message']}"
        if problem := train(last, whole, 1, None):
            return f"without a limit: {problem['message']}"
        if text := differences(run, whole, config):
            return text
        return "adapted" if places else "fits"


def differences(run: Path, whole: Path, config: TrainingConfig) -> str:
    """Return how the steps and evaluations of two runs differ, as a reader sees them."""
    views = [TrainingView(FolderTail(folder / "journal").read()) for folder in (run, whole)]
    steps = [step.step for step in views[0].steps]
    if steps != list(range(1, (config.training.max_steps or 0) + 1)):
        return f"steps {steps}"
    pairs = [([step.loss for step in view.steps],
              [event.metrics.get("eval_loss") for event in view.evaluations])
             for view in views]  # fmt: skip
    if [len(part) for part in pairs[0]] != [len(part) for part in pairs[1]]:
        return f"evaluations {pairs}"
    both = zip(*(losses + evaluated for losses, evaluated in pairs), strict=True)
    worst = max(abs(a / b - 1) for a, b in both)
    return f"losses differ by {worst:.1e}: {pairs}" if worst > TOLERANCE else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    prepare("tiny-llama")
    from llmops_kernel.train import loop  # noqa: F401  Each fork has it then.

    begun_s = time.monotonic()
    results: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.configs):
        if time.monotonic() - begun_s > 60 * options.minutes:
            break
        result = check(seed, lambda text: print(text, end=": ", flush=True))
        print(result, flush=True)
        is_right = result in ("fits", "adapted", "nothing fits")
        results[result if is_right else "wrong"] += 1
    print(f"{results.total()} configs in {time.monotonic() - begun_s:.0f} s: {dict(results)}")
    return 1 if results["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
