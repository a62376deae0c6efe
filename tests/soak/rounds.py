"""Rounds of random actions of both users at once, checked after each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from tests.soak import local_actions, sampling
from tests.soak.invariants import check_owners, check_runs, left_in_tmp
from tests.soak.namespaces import bind
from tests.soak.shared_cluster import SHARED_ACTIONS, SharedCluster
from tests.soak.user import BASE, User

_FIRST_UID = 64101
_WIDTH = 79
_ROUND_S = 30.0
_LINE_S = 55.0
_INTERRUPTED = 130


class Soak:
    def __init__(self, *, minutes: float, seed: int, pace: float) -> None:
        self.minutes, self.seed, self.pace = minutes, seed, pace
        names = ("alice", "bob")
        self.users = [User(n, _FIRST_UID + i, seed=f"{seed}") for i, n in enumerate(names)]
        self.samples: dict[str, list[sampling.Sample]] = {user.name: [] for user in self.users}
        self.num_lines: dict[str, int] = {}
        self.began_s = self.cpu_before_s = 0.0
        self.busy = 0.0
        self.has_ended = False
        self.left: dict[str, list[str]] = {}
        self._next_line_s = 0.0

    def make(self) -> None:
        """Homes, and names for the two user ids."""
        BASE.mkdir(mode=0o755)
        names = BASE / "passwd"
        lines = [f"{u.name}:x:{u.uid}:{u.uid}::{u.home}:/bin/sh\n" for u in self.users]
        with open("/etc/passwd") as known:
            names.write_text(known.read() + "".join(lines))
        bind(names, "/etc/passwd")
        (BASE / "truth").mkdir()
        for user in self.users:
            user.make()

    def run(self) -> None:
        with SharedCluster(self.users) as shared:
            self.together(lambda user: local_actions.ready(user))
            self.began_s, self.cpu_before_s = time.monotonic(), sampling.cpu_seconds()
            number = 0
            while self.passed_s() < 60 * self.minutes and not self.is_hopeless():
                number += 1
                before_s = time.monotonic()
                self.round(shared)
                self.check(shared)
                self.progress()
                self.rest(until_s=before_s + _ROUND_S if self.pace < 1 else before_s)
            self.end(shared)

    def passed_s(self) -> float:
        return time.monotonic() - self.began_s if self.began_s else 0.0

    def is_hopeless(self) -> bool:
        return sum(len(user.broken) for user in self.users) >= 20

    def together(self, action: Callable[[User], object]) -> None:
        """Do it as both users at once; a failure of the soak itself is one of its user."""

        def guarded(user: User) -> None:
            try:
                action(user)
            except Exception as error:
                user.broke(f"{type(error).__name__}: {error}")

        threads = [
            threading.Thread(target=guarded, args=(user,), daemon=True) for user in self.users
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def round(self, shared: SharedCluster) -> None:
        touched: set[str] = set()

        def actions(user: User) -> None:
            for _ in range(user.random.randint(1, 3)):
                if self.act(user, shared):
                    touched.add(user.name)
            user.doing = ""

        self.together(actions)
        time.sleep(2)  # The operator looks every two seconds.
        for user in self.users:
            if user.name in touched:
                shared.known[user.name] = shared.objects(user)
            else:
                shared.check(user)

    def act(self, user: User, shared: SharedCluster) -> bool:
        """Do one random thing; returns whether it may have changed the shared cluster."""
        local = {name: weight for name, (weight, _) in local_actions.ACTIONS.items()}
        far = {name: weight for name, (weight, _) in SHARED_ACTIONS.items()}
        weights = local | far
        name = user.random.choices(list(weights), list(weights.values()))[0]
        user.doing = f"action {sum(user.counts.values()) + 1} ({name})"
        user.counts[name] = user.counts.get(name, 0) + 1
        if name in local:
            local_actions.ACTIONS[name][1](user)
            return False
        SHARED_ACTIONS[name][1](user, shared)
        return name != "stranger"

    def check(self, shared: SharedCluster) -> None:
        def checks(user: User) -> None:
            user.doing = ""
            self.num_lines[user.name] = check_runs(user)
            check_owners(user)
            self.samples[user.name].append(sampling.sample(user, began_s=self.began_s))

        self.together(checks)

    def progress(self) -> None:
        """Print a line a minute."""
        if time.monotonic() < self._next_line_s:
            return
        self._next_line_s = time.monotonic() + _LINE_S
        counts = {name: sum(user.counts.get(name, 0) for user in self.users) for name in ACTIONS}
        kills = sum(number for name, number in counts.items() if name.startswith("kill"))
        last = [self.samples[user.name][-1] for user in self.users if self.samples[user.name]]
        memory_gb = sum(one.memory_mb for one in last) / 1000
        line = (
            f"{self.passed_s() / 60:5.1f} min  {sum(counts.values()):4} actions"
            f"  {sum(len(user.runs) for user in self.users):4} runs  {kills:3} kills"
            f"  {sum(one.processes for one in last):3} processes  {memory_gb:.1f} GB"
            f"  {sum(len(user.broken) for user in self.users)} broken"
        )
        print(line[:_WIDTH], flush=True)

    def rest(self, *, until_s: float) -> None:
        """Wait until no more of a core was used on average than asked for."""
        ends_s = self.began_s + 60 * self.minutes
        while time.monotonic() < ends_s:
            used_s = sampling.cpu_seconds() - self.cpu_before_s
            self.busy = used_s / self.passed_s()
            if self.busy <= self.pace and time.monotonic() >= until_s:
                return
            time.sleep(1)

    def end(self, shared: SharedCluster) -> None:
        """Everything is stopped and deleted: nothing may be left."""
        used_s = sampling.cpu_seconds() - self.cpu_before_s
        self.busy = used_s / max(self.passed_s(), 1.0)
        self.together(lambda user: self.leave(user, shared))
        self.has_ended = True

    def leave(self, user: User, shared: SharedCluster) -> None:
        user.doing = "end"
        for text in sampling.growth(self.samples[user.name]):
            user.broke(f"not flat: {text}")
        if shared.state(user) != "absent":
            user.llmops("delete", shared.name(user), "--yes", "--force")
        refs = [ref for mark, ref in user.ids.items() if not user.runs[mark].is_deleted]
        if refs:
            user.llmops("rm", *refs, "--yes")
        user.llmops("delete", "local", "--yes")
        user.until(lambda: not sampling.processes_of(user), 30)
        for process in sampling.processes_of(user):
            try:
                user.broke(f"process {process.pid} is left: {' '.join(process.cmdline())[:200]}")
            except psutil.Error:
                continue
        self.left[user.name] = left_in_tmp(user)

    def report(self) -> int:
        """Print the table of all that was done and what broke; returns the exit code."""
        print(f"\nseed {self.seed}, {self.passed_s() / 60:.0f} minutes, {self.busy:.2f} of a core")
        for user in self.users:
            done = ", ".join(
                f"{name} {user.counts[name]}" for name in ACTIONS if name in user.counts
            )
            print(f"\n{user.name}: {len(user.runs)} runs, {self.num_lines.get(user.name, 0)} lines")
            print(f"  {done}")
            if self.samples[user.name]:
                print("\n".join(sampling.table(self.samples[user.name])))
            for path in self.left.get(user.name, ()):
                print(f"  left at the end: {path}")
        broken = [text for user in self.users for text in user.broken]
        for text in broken:
            print(f"BROKEN {text}")
        if broken:
            print(f"again: python -m tests.soak --minutes {self.minutes:g} --seed {self.seed}")
        elif not self.has_ended:
            print("\nnothing broke until then; what is left at the end was not checked")
        else:
            print("\nno journal line lost or doubled, nothing touched by the other user, all flat")
        return 1 if broken else 0 if self.has_ended else _INTERRUPTED


ACTIONS = (*local_actions.ACTIONS, *SHARED_ACTIONS)
