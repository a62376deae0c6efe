"""Runs that go on one after the other in several places at once, and who looks at them."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import llmops_kernel as llmops
from tests.soak.kubernetes.compare import TERMINAL, Shown
from tests.soak.kubernetes.place import CLUSTER

STEPS = (60, 110)
"""Of 0.8 s each and what they take."""
_AGAIN_S = 3.0
_LOOK_S = 1.0


class Work:
    """Submits from as many threads as runs shall go on at a time."""

    def __init__(self, configs: Sequence[Path], *, seed: int) -> None:
        self._configs, self._seed = configs, seed
        self.steps: dict[str, int] = {}
        """Of each run that was submitted."""
        self.refused: Counter[str] = Counter()
        """What was said when a run could not be submitted."""
        self.broken: list[str] = []
        self.slowest_s: Counter[str] = Counter()
        self._handles: dict[str, llmops.Run] = {}
        self._closing = threading.Event()
        self._closed = threading.Event()
        slots = [(self._submit_all, number) for number in range(len(configs))]
        self._threads = [threading.Thread(target=self._guarded, args=one) for one in slots]
        self._asker = threading.Thread(target=self._guarded, args=(self._ask, 0))

    def start(self) -> None:
        for thread in (*self._threads, self._asker):
            thread.daemon = True
            thread.start()

    def _guarded(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception:
            self.broken.append(traceback.format_exc()[-1500:])

    def _submit_all(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        while not self._closing.is_set():
            steps = chance.randint(*STEPS)
            run = self._submit(self._configs[number], steps)
            while run is not None and not self._closed.is_set() and not run.has_ended:
                time.sleep(_LOOK_S)

    def _submit(self, config: Path, steps: int) -> llmops.Run | None:
        begun_s = time.monotonic()
        try:
            cluster = llmops.cluster(CLUSTER)
            run = cluster.submit(config, overrides=[f"training.max_steps={steps}"])
        except llmops.LLMOpsError as error:
            self.refused[f"{type(error).__name__}: {error}"] += 1
            self._closing.wait(_AGAIN_S)
            return None
        self._took("submit", begun_s)
        self.steps[run.id] = steps
        self._handles[run.id] = run
        return run

    def _ask(self, _: int) -> None:
        """As a page that is open: state of the cluster and of all runs, all the time."""
        while not self._closed.wait(_LOOK_S):
            begun_s = time.monotonic()
            self._info()
            self._took("state of the cluster", begun_s)
            for run_id, run in list(self._handles.items()):
                begun_s = time.monotonic()
                state = run.state
                self._took("state of a run", begun_s)
                if state in TERMINAL - {"SUCCEEDED"} and run_id in self._handles:
                    self.broken.append(f"{run_id} is shown as {state}: {run.view.message}")
                if state in TERMINAL:
                    # Nobody holds on to what has ended, so that memory can be flat.
                    self._handles.pop(run_id, None)

    def _took(self, what: str, begun_s: float) -> None:
        self.slowest_s[what] = max(self.slowest_s[what], time.monotonic() - begun_s)

    def _info(self) -> Shown:
        try:
            info = llmops.cluster(CLUSTER).info
        except llmops.LLMOpsError as error:
            return Shown("client", None, None, f"{type(error).__name__}: {error}")
        return Shown("client", info.state, info.workers_ready, info.message)

    def shown(self) -> Shown:
        """What this client shows now, of all runs of the home."""
        runs = {}
        for found in llmops.runs(limit=None):
            run = self._handles.get(found.id) or found
            runs[run.id] = (str(run.state), run.view.last_step)
        info = self._info()
        return Shown(info.who, info.state, info.workers, info.message, runs)

    @property
    def going_on(self) -> int:
        return len(self._handles)

    def all_train(self) -> bool:
        """Whether as many runs as wanted have made a step."""
        with_steps = [run for run in list(self._handles.values()) if run.view.last_step]
        return len(with_steps) >= len(self._configs)

    def end(self, timeout_s: float) -> None:
        """Submit nothing more and wait for those that go on."""
        self._closing.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                self.broken.append(f"a run has not ended {timeout_s:.0f} s after the last kill")
        self._closed.set()
        self._asker.join(60)
