"""One kill after the other: the work goes on, what was hit comes back, and all is compared."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.soak.kills import truth, victims
from tests.soak.kills.place import CLUSTER, EVERY_STEPS, ROWS, Page, Place, command_line, job_of
from tests.soak.kills.truth import RunOnDisk

_SETTLED_S = 240.0
_LOOK_S = 0.3
_LAST_LINES_S = 2.0
"""A driver's workers may write for so long after it was killed."""


@dataclass
class Kill:
    """One line of the table at the end."""

    number: int
    victim: str
    at_s: float = 0.0
    """Unix time."""
    who: str = ""
    ends: str = ""
    """`train` or `score` if it was the driver of that one."""
    seen: list[str] = field(default_factory=list)
    settled_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Rounds:
    """Keeps a training and a scoring running, and kills."""

    def __init__(self, place: Place, *, seed: int, only: tuple[str, ...] = ()) -> None:
        self.place, self._chance = place, random.Random(seed)
        self._victims = only or victims.VICTIMS
        self.kills: list[Kill] = []
        self.wrong: list[str] = []
        self.page = Page(place)
        self._active: dict[str, str] = {}
        """Run ids of the training and the scoring that go on."""
        self._engine: dict[str, str] = {}
        self._scripts: list[str] = []
        self._checked: set[str] = set()
        self.ended = 0
        self._pool = ThreadPoolExecutor(4)

    # What a user does.

    def begin(self) -> None:
        self._llmops("up", CLUSTER, must=True)
        self.place.note_head()
        if not self.page.wait(120):
            self._broke("the Jupyter server did not answer within 120 s")

    def run(self, kills: int, *, until_s: float) -> None:
        for number, victim in enumerate(victims.order(kills, self._chance, among=self._victims), 1):
            if time.monotonic() > until_s:
                break
            kill = Kill(number, victim)
            self.kills.append(kill)
            self.work()
            time.sleep(self._chance.uniform(0.0, 1.5))
            kill.at_s = time.time()
            self._kill(kill)
            self._settle(kill)
            kill.settled_s = time.time() - kill.at_s
            self._compare()
            self._say(kill)

    def finish(self) -> None:
        """All runs to their ends, then nothing is left of them."""
        for slot, run_id in list(self._active.items()):
            if not self._until(partial(self._end_of, run_id)):
                self._broke(f"{run_id} has not ended {_SETTLED_S:.0f} s after the last kill")
            self._check_end(slot)
        for run_id in self._scripts:
            if (
                not self._until(partial(self._end_of, run_id))
                or self._end_of(run_id) != "SUCCEEDED"
            ):
                self._broke(f"{run_id}, a script beside the kills, is {self._end_of(run_id)}")
        self._compare()
        self.page.kill()
        self._llmops("down", CLUSTER, must=True)
        if not self._until(lambda: not self.place.left(), 60):
            left = [f"{one.pid} {command_line(one)[:120]}" for one in self.place.left()]
            self._broke(f"processes are left after `llmops down`: {left}")

    def close(self) -> None:
        """End all that is left, also after an error."""
        self._pool.shutdown(cancel_futures=True)
        with suppress(OSError):
            self.page.kill()
        self.place.commands.call("down", CLUSTER, "--missing-ok", "--force", timeout_s=120)
        victims.kill(self.place.left())

    def work(self) -> None:
        """Have both running, with a checkpoint to go on from and rows that are done."""
        is_new = False
        for slot in ("train", "score"):
            if slot in self._active and self._read(self._active[slot]).end is None:
                continue
            if slot in self._active:
                self._check_end(slot)
            self._submit(slot)
            is_new = True
        if is_new:
            self.page.follow(self._active.values())
        for slot in list(self._active):
            if not self._until(partial(self._is_under_way, slot)):
                self._broke(f"{self._active[slot]} did not come under way in {_SETTLED_S:.0f} s")

    def _is_under_way(self, slot: str) -> bool:
        run = self._read(self._active[slot])
        last = len(run.attempts)
        kinds = [one["kind"] for one in run.events if one["attempt"] == last]
        wanted = "checkpoint" if slot == "train" else "progress"
        return run.end is not None or wanted in kinds

    def _submit(self, slot: str) -> None:
        if slot == "train":
            self._active[slot] = self._new(("submit", str(self.place.train)))
            return
        engine = "real" if len(self._engine) % 2 else "instant"
        self._active[slot] = self._new(("score", str(self.place.scores[engine]), "--detach"))
        self._engine[self._active[slot]] = engine

    def _new(self, words: tuple[str, ...]) -> str:
        """Submit and return the id of the run that is there then and was not before."""
        before = set(truth.read_runs(self.place.home))
        self._llmops(*words, must=True, cwd=Path(words[1]).parent)
        new = sorted(set(truth.read_runs(self.place.home)) - before)
        if len(new) != 1:
            self._broke(f"`llmops {words[0]}` made the runs {new}")
        return new[-1]

    # The kill, and what must come of it.

    def _kill(self, kill: Kill) -> None:
        if kill.victim == "client":
            self._kill_client(kill)
        elif kill.victim == "jupyter":
            kill.who = f"pid {self.page.process.pid}"
            self.page.kill()
        else:
            found = victims.find(kill.victim, self.place)
            if not found:
                kill.seen.append("none was there")
                return
            chosen = self._chance.choice(found) if kill.victim == "driver" else found[-1]
            kill.who = f"pid {chosen.pid} {command_line(chosen)[:60]}"
            kill.ends = victims.slot_of(command_line(chosen))
            victims.kill([chosen])

    def _kill_client(self, kill: Kill) -> None:
        """Of `submit --follow` at any moment: there is a whole run then, or none that runs."""
        commands = self.place.commands
        words = self._chance.choice(
            [("submit", str(self.place.script), "--follow"), ("wait", self._active["train"])]
        )
        process = subprocess.Popen(
            commands.line(*words),
            cwd=self.place.root,
            env=commands.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(self._chance.uniform(0.5, 8.0))
        process.kill()
        process.wait()
        kill.at_s = time.time()
        kill.who = f"llmops {words[0]}"

    def _settle(self, kill: Kill) -> None:
        if kill.victim in victims.HEAD:
            self._revive(kill)
        if kill.victim == "jupyter":
            self.page.start()
            if not self.page.wait(120):
                self._broke("the Jupyter server did not come up again within 120 s")
            self.page.follow(self._active.values())
        for slot in list(self._active):
            self._goes_on(slot, kill)
        if kill.victim in ("fork server", "keeper"):
            self._is_kept_again(kill)

    def _revive(self, kill: Kill) -> None:
        old = self.place.heads[-1]
        if not self._until(lambda: not self.place.head_lives()):
            self._broke(f"the head went on without its {kill.victim}")
        said = self._status()
        if said == "READY" and not self.place.head_lives():
            self._broke(f"{kill.victim} is dead and `status` says READY")
        kill.seen.append(said)
        self._llmops("resume", CLUSTER, must=True)
        self.place.note_head()
        if not self._until(lambda: not self.place.processes([old]), 60):
            left = [command_line(one)[:100] for one in self.place.processes([old])]
            self._broke(f"processes of the dead head are left: {left}")

    def _goes_on(self, slot: str, kill: Kill) -> None:
        """Wait for its next step or rows, or its end; a run that the kill ended is retried."""
        run_id = self._active[slot]
        since_s = kill.at_s + _LAST_LINES_S
        has_come = (
            partial(self._end_of, run_id)
            if kill.ends == slot
            else partial(self._has_news, run_id, since_s)
        )
        if not self._until(has_come):
            self._broke(f"{run_id} did not go on and has no end")
            return
        if self._read(run_id).end != "FAILED":
            return
        if kill.ends != slot and kill.victim not in victims.HEAD:
            self._broke(f"{run_id} failed because the {kill.victim} was killed")
        kill.seen.append(f"{slot} FAILED, retried")
        since_s = time.time()
        self._llmops("retry", run_id, must=True)
        self.page.follow(self._active.values())
        if not self._until(lambda: self._has_news(run_id, since_s)):
            self._broke(f"{run_id} did not go on after its retry")

    def _has_news(self, run_id: str, since_s: float) -> bool:
        """A head or driver that is dead can still have written a line after the kill."""
        run = self._read(run_id)
        if run.end is not None:
            return True
        return bool(run.progress_since(since_s)) and self._has_driver(run)

    def _is_kept_again(self, kill: Kill) -> None:
        """The next process of a job starts a keeper that is gone, and a keeper its server."""
        if kill.victim == "keeper":
            self._scripts.append(self._new(("submit", str(self.place.script))))
        for title in ("keeper", "fork server"):
            if not self._until(partial(victims.find, title, self.place)):
                self._broke(f"no {title} is there after the kill of the {kill.victim}")

    # What is compared after each kill.

    def _compare(self) -> None:
        """Journals, then processes, then what is shown: each as the files and processes are."""
        if not self._until(lambda: not self._orphans(), 60):
            for text in self._orphans():
                self._broke(text)
        reported = truth.reported_steps(self.place.truth)
        for run_id, run in truth.read_runs(self.place.home).items():
            steps = reported.get(run_id, set())
            for text in truth.journal_faults(run, every_steps=EVERY_STEPS, reported=steps):
                self._broke(text)
        # A run that has just ended may be shown as before for a moment.
        if not self._until(lambda: not self._wrong_states(), 30):
            for text in self._wrong_states():
                self._broke(text)

    def _orphans(self) -> list[str]:
        runs = truth.read_runs(self.place.home)
        ids = {job: run for run in runs.values() for job in run.attempts}
        found = []
        for pid, job in victims.drivers(self.place).items():
            owner = next((run for name, run in ids.items() if f'"{name}"' in job), None)
            if owner is None or owner.end is not None or f'"{owner.attempts[-1]}"' not in job:
                found.append(f"process {pid} of a run that has ended runs: {job[:200]}")
        going_on = [slot for slot, one in self._active.items() if runs[one].end is None]
        for title, slot in (("worker", "train"), ("engine", "score")):
            count = len(victims.find(title, self.place))
            if count > going_on.count(slot):
                found.append(f"{count} {title} processes and {going_on.count(slot)} {slot} run")
        for old in self.place.heads[:-1]:
            if left := self.place.processes([old]):
                found.append(f"{len(left)} processes of a dead head: {command_line(left[0])[:100]}")
        return found

    def _wrong_states(self) -> list[str]:
        """Of all screens; what changes while it is asked is left out."""
        before = self._facts()
        commands = [("runs", "--json", "--limit", "200"), ("status", CLUSTER, "--json")]
        active = next(iter(self._active.values()))
        commands.append(("show", active, "--json"))
        answers = [self._pool.submit(self._json, *words) for words in commands]
        page_runs, page_clusters = self.page.get("runs"), self.page.get("clusters")
        listed, status, shown = (answer.result() for answer in answers)
        after = self._facts()
        found: list[str] = []
        by_command = {one["run_id"]: one["state"] for one in _rows(listed)}
        by_page = {one["run_id"]: one["state"] for one in _rows(page_runs)}
        by_show = {active: str((shown or {}).get("state"))}
        for run_id, (run, has_driver) in after.items():
            then = before.get(run_id)
            if then is None or (then[0].end, then[1]) != (run.end, has_driver):
                continue
            screens = [("runs", by_command), ("the page", by_page)]
            if run_id == active:
                screens.append(("show", by_show))
            for who, states in screens:
                found += truth.state_faults(run, states, has_driver=has_driver, who=who)
        lives = self.place.head_lives()
        clusters = {one["name"]: (one["info"] or {}).get("state") for one in _rows(page_clusters)}
        for who, state in (
            ("status", (status or {}).get("state")),
            ("the page", clusters.get(CLUSTER)),
        ):
            if lives != (str(state).upper() == "READY"):
                found.append(f"{who}: the head {'lives' if lives else 'is dead'} and is {state}")
        return found

    def _facts(self) -> dict[str, tuple[RunOnDisk, bool]]:
        runs = truth.read_runs(self.place.home)
        jobs = list(victims.drivers(self.place).values())
        return {
            run_id: (run, any(f'"{name}"' in job for job in jobs for name in run.attempts))
            for run_id, run in runs.items()
        }

    def _check_end(self, slot: str) -> None:
        """A run that has ended: succeeded, with all its steps or rows."""
        run = self._read(self._active[slot])
        if run.end is None or run.run_id in self._checked:
            return
        self._checked.add(run.run_id)
        self.ended += 1
        if run.end != "SUCCEEDED":
            self._broke(f"{run.run_id} is {run.end}")
        elif slot == "train":
            steps = {one["step"] for one in run.events if one["kind"] == "step"}
            total = max(one["total_steps"] for one in run.events if one["kind"] == "start")
            if steps != set(range(1, total + 1)):
                self._broke(f"{run.run_id} has {len(steps)} of {total} steps")
        else:
            engine = self._engine[run.run_id]
            for text in truth.row_faults(run, rows=ROWS[engine], is_echo=engine == "instant"):
                self._broke(text)

    # Small things.

    def _end_of(self, run_id: str) -> str | None:
        return self._read(run_id).end

    def _read(self, run_id: str) -> RunOnDisk:
        return truth.read_run(self.place.home / "runs" / run_id)

    def _has_driver(self, run: RunOnDisk) -> bool:
        name = f'"{run.attempts[-1]}"'
        return any(name in job_of(one) for one in self.place.processes())

    def _status(self) -> str:
        info = self._json("status", CLUSTER, "--json")
        return str((info or {}).get("state")).upper()

    def _json(self, *words: str) -> Any:
        done = self.place.commands.call(*words)
        with suppress(ValueError):
            return json.loads(done.stdout)
        self._broke(f"`llmops {words[0]}` said {(done.stdout + done.stderr).strip()[-300:]!r}")
        return None

    def _llmops(self, *words: str, must: bool = False, cwd: Path | None = None) -> bool:
        done = self.place.commands.call(*words, cwd=cwd)
        if done.returncode and must:
            said = " ".join((done.stdout + done.stderr).split())[-600:]
            self._broke(f"`llmops {' '.join(words[:2])}` ended with {done.returncode}: {said}")
        return done.returncode == 0

    def _until(self, condition: Callable[[], object], seconds: float = _SETTLED_S) -> bool:
        deadline_s = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def _broke(self, text: str) -> None:
        print(f"WRONG: {text}", flush=True)
        self.wrong.append(text)
        if self.kills:
            self.kills[-1].wrong.append(text)

    def _say(self, kill: Kill) -> None:
        seen = "; ".join(kill.seen) or "went on"
        print(
            f"{kill.number:3} {kill.victim:12} settled after {kill.settled_s:5.1f} s, {seen}"
            f" ({kill.who})",
            flush=True,
        )


def _rows(answer: Any) -> list[dict[str, Any]]:
    """The rows of a list, which a route may wrap."""
    if isinstance(answer, dict):
        lists = [value for value in answer.values() if isinstance(value, list)]
        return list(lists[0]) if lists else []
    return list(answer) if isinstance(answer, list) else []
