"""The replicas of a run's engine with their scorers: started, waited for, added, given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.driver.beats import Member
from llmops_kernel.driver.nodes import Node, NodeHolds
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.score.engine_replicas import (
    forget,
    free_gpus,
    get_replica,
    give_up,
    load_failure,
    standing_replica,
    was_ended,
)
from llmops_kernel.score.scorer import Scorer, ScorerSetup

PARTS_AT_ONCE = 2
"""Parts of a scorer: while one part's last answers come, the next one's first are worked on."""
_ASK_OTHERS_S = 2.0
_WAITING_S = 8.0
_POLL_S = 5.0
_ENDED_BY_OTHERS = 3


@dataclass(frozen=True)
class Slot:
    """A hashable actor for Ray's ActorPool, which refuses one that it has already."""

    scorer: Any
    number: int


@dataclass
class Replica:
    index: int
    engine: Any
    loading: Any
    """Ray's reference to the result of `load`."""
    is_new: bool
    """True if this run has started it."""
    times_ended: int = 0
    """By others, while it was waited for."""
    scorer: Any = None
    facts: dict[str, Any] = field(default_factory=dict)


class Fleet:
    """Starts replicas, and scorers for those that are loaded."""

    def __init__(
        self,
        setup: ScorerSetup,
        *,
        replicas: int,
        max_replicas: int,
        warn: Callable[[str, str], None],
    ) -> None:
        now_s = time.monotonic()
        self._setup, self._warn = setup, warn
        self._scaling = Scaling(max_replicas, parts_at_once=PARTS_AT_ONCE, now_s=now_s)
        self._loading: list[Replica] = []
        self.ready: list[Replica] = []
        self._begun_s = self._polled_s = now_s
        self._asked_others = self._warned = False
        for index in range(replicas):
            self._start(index)

    def _start(self, index: int, *, times_ended: int = 0) -> None:
        deployment = self._setup.deployment
        is_new = standing_replica(deployment, index) is None
        engine = get_replica(deployment, index)
        loading = engine.load.remote(
            keep_s=deployment.keep_s, run=deployment.run, caller=self._setup.caller
        )
        self._loading.append(Replica(index, engine, loading, is_new, times_ended))

    def poll(self) -> list[Replica]:
        """Return the replicas that are loaded since the last call, each with its scorer.

        Raises ModelError when none can be loaded; another one that cannot is left out with a
        warning.
        """
        import ray

        added = []
        for replica in list(self._loading):
            if not ray.wait([replica.loading], timeout=0)[0]:
                continue
            self._loading.remove(replica)
            try:
                replica.facts = ray.get(replica.loading)
            except Exception as error:
                self._failed(replica, error)
                continue
            replica.scorer = self._scorer(replica)
            self.ready.append(replica)
            added.append(replica)
        self._wait_for_the_first()
        self._find_replaced()
        return added

    def _find_replaced(self) -> None:
        """Find engines that left and were started again by their scorers, as other actors."""
        if time.monotonic() - self._polled_s >= _POLL_S:
            self._polled_s = time.monotonic()
            for replica in self.ready:
                replica.engine = (
                    standing_replica(self._setup.deployment, replica.index) or replica.engine
                )

    def _scorer(self, replica: Replica) -> Any:
        import ray

        # Ray restarts it and makes its calls again: a part that is written twice is the same file.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 3, "max_concurrency": 8}
        return ray.remote(Scorer).options(**options).remote(self._setup, replica.index)

    def _failed(self, replica: Replica, error: Exception) -> None:
        if was_ended(error) and replica.times_ended < _ENDED_BY_OTHERS:
            # For want of work just when it was found, or by a run that was stopped.
            self._start(replica.index, times_ended=replica.times_ended + 1)
            return
        forget(self._setup.deployment, replica.index)
        failure = load_failure(self._setup.deployment, error)
        if not self.ready and not self._loading:
            raise failure
        if self._scaling.failed(time.monotonic()):
            left_out = f"Replica {replica.index} of the engine was left out: {failure.message}"
            self._warn(left_out, failure.remedy)

    def _wait_for_the_first(self) -> None:
        """Ask idle engines of others to leave where GPUs are missing; later warn, once."""
        import ray

        deployment, waited_s = self._setup.deployment, time.monotonic() - self._begun_s
        num_gpus = deployment.spec.num_gpus
        if self.ready or self._warned or not num_gpus or waited_s < _ASK_OTHERS_S:
            return
        free = ray.available_resources().get("GPU", 0)
        if free >= num_gpus:
            return
        if not self._asked_others:
            self._asked_others = True
            free_gpus([deployment.name(replica.index) for replica in self._loading])
        elif waited_s >= _WAITING_S:
            self._warned = True
            self._warn(
                f"The engine is waiting for {num_gpus:g} GPUs; {free:g} are free.",
                "another run uses the rest; `llmops status` shows which",
            )

    def grow(self, *, parts_left: int) -> None:
        """Start one more replica where the config allows it and the cluster has room."""
        import ray

        now_s, count = time.monotonic(), len(self.ready) + len(self._loading)
        if self._loading or not self._scaling.is_due(now_s, count=count, parts_left=parts_left):
            return
        self._scaling.note_attempt(now_s)
        free, gpus = ray.available_resources(), self._setup.deployment.spec.num_gpus
        if free.get("GPU", 0) >= gpus if gpus else free.get("CPU", 0) >= 1:
            indices = {replica.index for replica in self.ready}
            self._start(next(index for index in range(count + 1) if index not in indices))

    def stop(self) -> None:
        """Ask scorers to leave their parts and engines to drop them; engines stay loaded."""
        for replica in self.ready:
            replica.scorer.cancel.remote()
        self._drop()

    def end(self) -> None:
        """End the scorers; engines stay until nobody has used them for `keep_s`.

        Engines that are not loaded yet end too, if this run has started them and nobody else waits
        for them: one that waits for a GPU would take it when nobody asks it.
        """
        import ray

        for replica in self.ready:
            ray.kill(replica.scorer, no_restart=True)
        # What a scorer of a run that failed has sent, nobody waits for either.
        self._drop()
        give_up(
            [replica.engine for replica in self._loading if replica.is_new],
            caller=self._setup.caller,
        )
        self.ready, self._loading = [], []

    def _drop(self) -> None:
        """Tell the engines that are there now, which may have replaced the first ones."""
        for replica in self.ready:
            engine = standing_replica(self._setup.deployment, replica.index)
            if engine is not None:
                engine.drop.remote(self._setup.caller)


# --- Scaling policy. Time is an argument ---


EVERY_S = 5.0
"""Between two starts."""
TRIES = 3
"""Failed loads after which no further replica is started."""
_LONGER = 4.0


class Scaling:
    """Waits longer after each replica that could not load, and gives up at last."""

    def __init__(self, most: int, *, parts_at_once: int, now_s: float) -> None:
        """Scale up to `most` replicas, which the config allows; each works on `parts_at_once`."""
        self._most, self._parts_at_once = most, parts_at_once
        self._failures = 0
        self._next_s = now_s + EVERY_S

    def is_due(self, now_s: float, *, count: int, parts_left: int) -> bool:
        """Return whether a further replica is allowed, has work, and it is time for it.

        `count`: replicas that are there.
        """
        has_work = parts_left > count * self._parts_at_once
        return count < self._most and has_work and not self.gave_up and now_s >= self._next_s

    @property
    def gave_up(self) -> bool:
        return self._failures >= TRIES

    def note_attempt(self, now_s: float) -> None:
        """Note that a replica was started, or that the cluster had no room for one."""
        self._next_s = now_s + EVERY_S

    def failed(self, now_s: float) -> bool:
        """Note that a replica could not load; return whether it is the first one."""
        self._failures += 1
        self._next_s = now_s + EVERY_S * _LONGER**self._failures
        return self._failures == 1


# --- Nodes of replicas and scorers ---


class LiveNodes:
    """Keeps the nodes of the engines and scorers, which Ray may start again on another node."""

    def __init__(self, holds: NodeHolds, watch: RunWatch) -> None:
        self._holds, self._watch = holds, watch
        self._engines: dict[int, Mapping[str, Any]] = {}
        self._begun_s = time.time()
        self._nodes: dict[tuple[str, int], Node] = {}

    def loaded(self, index: int, facts: Mapping[str, Any]) -> None:
        """Note a loaded replica: its node was held while it loaded, unless it was loaded before."""
        self._nodes["engine", index] = facts["node"]
        load_s = facts.get("load_s") or 0.0
        since_s = max(self._begun_s, time.time() - load_s)
        self._holds.use(self._nodes.values(), since_s=since_s)
        self._measure({index: facts})

    def seen(
        self, facts: Mapping[int, Mapping[str, Any]], progress: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Take what engines and scorers report; of one that does not answer the last is kept."""
        self._nodes |= {("engine", index): report["node"] for index, report in facts.items()}
        self._nodes |= {("scorer", index): report["node"] for index, report in progress.items()}
        self._holds.use(self._nodes.values())
        self._measure(facts)

    def _measure(self, facts: Mapping[int, Mapping[str, Any]]) -> None:
        """Let the engines' processes be measured."""
        self._engines |= facts
        members: dict[str, list[Member]] = {}
        for index, known in sorted(self._engines.items()):
            member = Member(index, known["pid"], tuple(known.get("gpus", ())))
            members.setdefault(known["node"][0], []).append(member)
        self._watch.take(members)
