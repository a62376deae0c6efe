"""Storms and times of calm, and what is compared in each calm and at the end."""

from __future__ import annotations

import os
import time
from collections import Counter

import llmops_kernel as llmops
from tests.soak.kubernetes.chaos import PARTS, Chaos, storms
from tests.soak.kubernetes.compare import journal_faults, wrong_states
from tests.soak.kubernetes.figures import Sampler, growth, quarters
from tests.soak.kubernetes.place import CLUSTER, Place
from tests.soak.kubernetes.reader import Reader
from tests.soak.kubernetes.truth import Pods
from tests.soak.kubernetes.work import Work

CALM_S = 10.0
_READY_S, _FIRST_STEPS_S, _LAST_RUNS_S = 400.0, 300.0, 400.0


class Soak:
    def __init__(self, place: Place, *, minutes: float, seed: int, num_runs: int) -> None:
        self._place, self._minutes, self._seed = place, minutes, seed
        self.broken: list[str] = []
        self._chaos = Chaos(place.parts)
        self._work = Work(place.configs, seed=seed)
        self._looks: Counter[str] = Counter()
        self._lines = 0
        self._stormy_min = 0.0
        self._begun_s = time.monotonic()
        self._sampler = Sampler({})

    def run(self) -> None:
        cluster = llmops.up(CLUSTER).wait(timeout_s=_READY_S)
        self._pods = Pods(self._place)
        self._reader = Reader(self._place)
        self._sampler = Sampler({"client": os.getpid(), "reader": self._reader.pid})
        try:
            self._work.start()
            self._until_all_train()
            self._before = self._place.pods()
            self._begun_s = time.monotonic()
            self._sampler.start()
            self._storms()
            self._sampler.close()
            self._stormy_min = self._passed_min()
            self._work.end(_LAST_RUNS_S)
            time.sleep(CALM_S)
            self.look()
            self._check_journals()
            self._check_jobs()
        finally:
            self._sampler.close()
            self._reader.close()
        cluster.delete(force=True)
        self._check_end()

    def _until_all_train(self) -> None:
        deadline_s = time.monotonic() + _FIRST_STEPS_S
        while not self._work.all_train():
            if time.monotonic() > deadline_s or self._work.broken:
                raise RuntimeError(f"not all runs train: {self._work.broken or self._work.refused}")
            time.sleep(0.5)

    def _storms(self) -> None:
        for strikes in storms(self._seed):
            if self._passed_min() >= self._minutes or len(self.broken) > 20:
                return
            self._chaos.storm(strikes)
            time.sleep(CALM_S)
            self.look()
            print(self._line(), flush=True)

    def _passed_min(self) -> float:
        return (time.monotonic() - self._begun_s) / 60

    def look(self) -> None:
        """Compare what both clients show with what is so."""
        submissions = {
            run.id: attempts[-1].submission_id
            for run in llmops.runs(limit=None)
            if (attempts := run.attempts)
        }
        before = self._pods.look(submissions)
        begun_s = time.monotonic()
        # A run may be deleted or submitted between two questions; only these ones are compared.
        clients = [self._work.shown(), self._reader.shown(since_s=begun_s)]
        after = self._pods.look(submissions)
        for shown in clients:
            if shown is None:
                log = self._reader.log.read_text()[-1500:]
                self._broke(f"the reader showed nothing for half a minute: {log}")
            else:
                for text in wrong_states(shown, before, after):
                    self._broke(text)
        self._looks["times"] += 1
        self._looks["states"] += 2 * (2 + len(after.runs))
        if (pods := self._place.pods()) != self._before:
            self._broke(f"pods were started again: {self._before} before, {pods} now")
            self._before = pods

    def _broke(self, text: str) -> None:
        self.broken.append(f"{self._passed_min():.1f} min, {text}")
        print(f"BROKEN {self.broken[-1]}", flush=True)

    def _line(self) -> str:
        kills = ", ".join(f"{self._chaos.kills[part]} {part}" for part in PARTS)
        return (
            f"{self._passed_min():5.1f} min  kills: {kills}  runs: {len(self._work.steps)}"
            f" ({self._work.going_on} go on)  wrong: {len(self.broken)}"
        )

    def _check_journals(self) -> None:
        for run in llmops.runs(limit=None):
            steps = self._work.steps.get(run.id)
            if steps is None and run.state == "FAILED":
                continue  # Its submit was refused, which was said then.
            if run.state != "SUCCEEDED":
                self._broke(f"{run.id} is {run.state} at the end: {run.view.message}")
            home = {file.name: file.read_bytes() for file in run.folder.journal.glob("*.jsonl")}
            pods = self._pods.journal(run.id)
            if not pods:
                self._broke(f"{run.id} has no journal in the pods")
            self._lines += sum(data.count(b"\n") for data in home.values())
            for text in journal_faults(home, pods, num_steps=steps):
                self._broke(f"{run.id}: {text}")

    def _check_jobs(self) -> None:
        """No run was submitted twice, and none that nobody knows of."""
        jobs = set(self._pods.jobs())
        known = {one.submission_id for run in llmops.runs(limit=None) for one in run.attempts}
        if unknown := jobs - known:
            self._broke(f"Ray has jobs of no run: {sorted(unknown)}")

    def _check_end(self) -> None:
        deadline_s = time.monotonic() + 60
        while (left := self._place.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.5)
        if left:
            self._broke(f"{len(left)} processes of pods are left: {[one.pid for one in left]}")

    def report(self) -> int:
        """Print what was done and what broke; return the exit code."""
        for text in (*self._work.broken, *self._chaos.broken):
            self._broke(text)
        work, looks = self._work, self._looks
        print(f"\nseed {self._seed}, {self._stormy_min:.1f} minutes, {len(work.steps)} runs")
        for part in PARTS:
            away_s = self._chaos.down_s[part]
            print(f"  {part}: killed {self._chaos.kills[part]} times, away for {away_s:.0f} s")
        print(f"  {looks['states']} states compared in {looks['times']} times of calm")
        print(f"  {self._lines} journal lines compared")
        for what, seconds in sorted(work.slowest_s.items()):
            print(f"  slowest answer, {what}: {seconds:.1f} s")
        for text, number in work.refused.most_common():
            print(f"  submit refused {number} times: {text}")
        for name, samples in self._sampler.samples.items():
            print(f"  {name}:", *quarters(samples), sep="\n")
            for text in growth(samples):
                self._broke(f"{name} is not flat: {text}")
        if self.broken:
            print(f"\n{len(self.broken)} broken:", *self.broken, sep="\n  ")
            return 1
        print("\nno journal line lost or doubled, no wrong state after 10 s of calm, all flat")
        return 0
