"""A scripted agent works through the night: edit, submit, wait for a metric, keep or revert.

    python -m tests.benchmarks.agent_night --rounds 1000

Each round edits a value of the config or a line of the hooks, submits the tiny model on one
long-lived local cluster, waits for the held-out loss, and keeps the edit where it is lower. Prints
what a round takes beside its steps, proves that no run and no line of a journal is missing, and
reproduces ten random rounds. Ctrl-C ends after the round under way; the same command goes on.
A second Ctrl-C stops that round's run, which is then made again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import llmops_kernel as llmops
from llmops_kernel.api import Run
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.paths import HOME_ENV_VAR
from tests.tiny_training import write_training

NAME = "agent-night"
STEPS = 5
REPRODUCED = 10
POLL_S = 0.05
LIMIT_S = 300.0
CHOICES: dict[str, Sequence[Any]] = {
    "learning_rate": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "r": (2, 4, 8, 16),
    "weight_decay": (0.0, 0.01, 0.1),
    "hook": ("pass", *(f'kwargs["optimizer"].param_groups[0]["lr"] *= {x}' for x in (0.9, 1.2))),
}
"""What the agent edits: three values of the config, and a line of the hooks."""
HOOKS = """\
from transformers import TrainerCallback

class Edited(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        {line}

def callbacks():
    return [Edited()]
"""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A finished round, as a line of `rounds.jsonl`."""

    number: int
    run: str
    edit: str
    loss: float
    is_kept: bool
    values: dict[str, Any]
    """What the next round starts from."""
    wall_s: float
    """From the edit to the decision."""
    steps_s: float


class Night:
    """The rounds in a folder, which outlives this process."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._lines = folder / "rounds.jsonl"
        self.rounds: list[Round] = []
        if self._lines.exists():
            self.rounds = [Round(**json.loads(line)) for line in self._lines.open()]

    def round(self, cluster: llmops.Cluster) -> Round:
        """Do the next round."""
        begun_s, number = time.monotonic(), len(self.rounds) + 1
        drawn = random.Random(f"{self._seed}-{number}")
        before = self.rounds[-1].values if self.rounds else {k: v[0] for k, v in CHOICES.items()}
        field = drawn.choice(sorted(CHOICES))
        others = [value for value in CHOICES[field] if value != before[field]]
        values = before | {field: drawn.choice(others)}
        run = cluster.submit(self._write(number, values))
        run.group = NAME
        loss = self._loss(run)
        view = run.view
        assert isinstance(view, TrainingView)
        kept = [each.loss for each in self.rounds if each.is_kept]
        is_kept = loss < min(kept, default=float("inf"))
        done = Round(
            number=number,
            run=run.id,
            edit=f"{field} = {values[field]}",
            loss=loss,
            is_kept=is_kept,
            values=values if is_kept else before,
            wall_s=time.monotonic() - begun_s,
            steps_s=sum(step.step_time_s or 0.0 for step in view.steps),
        )
        run.close()
        with self._lines.open("a") as lines:
            lines.write(json.dumps(asdict(done)) + "\n")
        self.rounds.append(done)
        return done

    def _write(self, number: int, values: dict[str, Any]) -> Path:
        """Edit the workspace. Each round has a name of its own, by which it is known again."""
        config = write_training(
            self._folder / "workspace",
            f"round-{number:04d}",
            hooks=HOOKS.format(line=values["hook"]),
            data={"eval": "rows.jsonl", "max_eval_rows": 4},
            method={"type": "lora", "r": values["r"]},
            optimizer={k: values[k] for k in ("learning_rate", "weight_decay")},
            training={"max_steps": STEPS},
        )
        return config.replace(config.with_name("agent.train.yaml"))

    @staticmethod
    def _loss(run: Run) -> float:
        """Wait for the held-out loss of the end."""
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            view = run.view
            assert isinstance(view, TrainingView)
            if view.evals and view.evals[-1].step == STEPS:
                return view.evals[-1].metrics["eval_loss"]
            if view.is_terminal:
                break
            time.sleep(POLL_S)
        raise SystemExit(f"{run.id} is {run.state}, without a loss: {run.view.message}")

    def delete_unfinished(self) -> None:
        """Delete the run of a round that was interrupted: it is done again."""
        known = {each.run for each in self.rounds}
        for run in self._runs():
            if run.id not in known and not run.record.reproduces:
                print(f"{run.id} was interrupted: its round is done again")
                run.stop()
                run.wait(LIMIT_S, raise_on_failure=False)
                run.delete()

    @staticmethod
    def _runs() -> list[Run]:
        return [run for run in llmops.runs(limit=None) if run.id.startswith("round-")]

    def lost(self) -> list[str]:
        """Return what is missing of the rounds: runs, steps, lines of journals."""
        stored = {run.id: run for run in self._runs() if not run.record.reproduces}
        done = {each.run for each in self.rounds}
        problems = [f"{run_id} is not in the store" for run_id in sorted(done - stored.keys())]
        extra = stored.keys() - done
        problems += [f"{run_id} is of no round" for run_id in sorted(extra)]
        for run_id, run in stored.items():
            numbers = defaultdict(list)
            for event in run.events():
                numbers[event.stream].append(event.seq)
            for stream, seqs in numbers.items():
                if sorted(seqs) != list(range(1, len(seqs) + 1)):
                    problems.append(f"{run_id}: the stream {stream} has gaps or repeats")
            if list(run.metrics().index) != list(range(1, STEPS + 1)):
                problems.append(f"{run_id}: steps {list(run.metrics().index)}")
            if run.state != "SUCCEEDED":
                problems.append(f"{run_id} is {run.state}")
            run.close()
        return problems


def report(rounds: Sequence[Round]) -> None:
    """Print what rounds take beside their steps; the first rounds pay for caches."""
    beside = [each.wall_s - each.steps_s for each in rounds]
    steps = statistics.median(each.steps_s for each in rounds)
    kept = sum(each.is_kept for each in rounds)
    print(f"{len(rounds)} rounds, {kept} kept; steps of a round: median {steps:.2f} s")
    tenth = max(1, len(beside) // 10)
    for words, part in (
        ("a round beside its steps", beside),
        ("the first tenth of them", beside[:tenth]),
        ("the last tenth", beside[-tenth:]),
    ):
        p95 = statistics.quantiles(part, n=20, method="inclusive")[-1] if len(part) > 1 else part[0]
        print(f"{words}: median {statistics.median(part):.2f} s, p95 {p95:.2f} s")


def reproduced(rounds: Sequence[Round], *, seed: int) -> int:
    """Reproduce random rounds; return how many are equal."""
    chosen = random.Random(seed).sample(list(rounds), min(REPRODUCED, len(rounds)))
    num_equal = 0
    for each in chosen:
        try:
            answer = llmops.attach(each.run).reproduce()
        except LLMOpsError as error:
            print(f"{each.run}: {error}")
            continue
        num_equal += answer.is_equal
        print(f"{each.run}: {answer.text}", flush=True)
    print(f"reproduced: {num_equal} of {len(chosen)} are equal")
    return num_equal


def work(night: Night, *, rounds: int, seed: int) -> None:
    is_asked_to_end = False

    def interrupt(*_: object) -> None:
        nonlocal is_asked_to_end
        if is_asked_to_end:
            raise KeyboardInterrupt
        is_asked_to_end = True
        print("\nEnds after this round; Ctrl-C again ends at once.", flush=True)

    cluster = llmops.cluster(NAME)
    night.delete_unfinished()
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        while len(night.rounds) < rounds and not is_asked_to_end:
            done = night.round(cluster)
            verb = "kept" if done.is_kept else "reverted"
            print(
                f"{done.number} of {rounds}: {done.edit}, loss {done.loss:.4f}, {verb};"
                f" {done.wall_s:.2f} s, steps {done.steps_s:.2f} s",
                flush=True,
            )
    finally:
        signal.signal(signal.SIGINT, before)
    if not night.rounds:
        return
    # Its metric was all that the agent has waited for; its result is still being saved.
    llmops.attach(night.rounds[-1].run).wait(LIMIT_S, raise_on_failure=False)
    report(night.rounds)
    if is_asked_to_end:
        print("Interrupted: the same command goes on.")
        return
    problems = night.lost()
    print("\n".join(problems) or f"nothing lost: {rounds} rounds, {rounds} runs, whole journals")
    reproduced(night.rounds, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / NAME)
    parser.add_argument("--fresh", action="store_true", help="delete the folder first")
    arguments = parser.parse_args()
    if arguments.fresh:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ[HOME_ENV_VAR] = str(arguments.folder / "home")
    provider = LocalProvider()
    provider.up(ClusterTemplate(name=NAME), progress=print)
    try:
        night = Night(arguments.folder, seed=arguments.seed)
        work(night, rounds=arguments.rounds, seed=arguments.seed)
    finally:
        provider.down(NAME)


if __name__ == "__main__":
    main()
