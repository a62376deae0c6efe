"""The replicas of a run's engine with their scorers: started, waited for, added, given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.score.scorer import Scorer, ScorerSetup
from llmops_kernel.score.standing.replicas import forget, load_failure, replica

PARTS_AT_ONCE = 2
"""Of a scorer: while one part's last answers come, the next one's first are worked on."""
_SCALE_EVERY_S = 5.0
_WAITING_S = 8.0


@dataclass(frozen=True)
class Slot:
    """What Ray's ActorPool takes for an actor: it refuses one that it has already."""

    scorer: Any
    number: int


@dataclass
class Replica:
    index: int
    engine: Any
    loading: Any
    """Ray's reference to the result of `load`."""
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
        self._setup, self._max = setup, max_replicas
        self._warn = warn
        self._loading: list[Replica] = []
        self.ready: list[Replica] = []
        self._begun_s = time.monotonic()
        self._scaled_s = time.monotonic()
        self._warned = False
        for index in range(replicas):
            self._start(index)

    def _start(self, index: int) -> None:
        engine = replica(self._setup.deployment, index)
        deployment = self._setup.deployment
        loading = engine.load.remote(keep_s=deployment.keep_s, run=deployment.run)
        self._loading.append(Replica(index, engine, loading))

    def poll(self) -> list[Any]:
        """Return the scorers of replicas that are loaded since the last call.

        Raises ModelError when none can be loaded; another one that cannot is left out with a
        warning.
        """
        import ray

        added = []
        for one in list(self._loading):
            if not ray.wait([one.loading], timeout=0)[0]:
                continue
            self._loading.remove(one)
            try:
                one.facts = ray.get(one.loading)
            except Exception as error:
                self._failed(one, error)
                continue
            one.scorer = self._scorer(one)
            self.ready.append(one)
            added.append(one.scorer)
        self._say_if_waiting()
        return added

    def _scorer(self, one: Replica) -> Any:
        import ray

        # Ray restarts it and makes its calls again: a part that is written twice is the same file.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 3, "max_concurrency": 8}
        return ray.remote(Scorer).options(**options).remote(self._setup, one.index)

    def _failed(self, one: Replica, error: Exception) -> None:
        forget(self._setup.deployment, one.index)
        known = load_failure(self._setup.deployment, error)
        if not self.ready and not self._loading:
            raise known
        self._warn(f"Replica {one.index} of the engine was left out: {known.message}", known.remedy)

    def _say_if_waiting(self) -> None:
        """Warn once when the first replica waits for resources that others use."""
        import ray

        if self.ready or self._warned or time.monotonic() - self._begun_s < _WAITING_S:
            return
        wanted = self._setup.deployment.spec.num_gpus
        free = ray.available_resources().get("GPU", 0)
        if wanted and free < wanted:
            self._warned = True
            self._warn(
                f"The engine is waiting for {wanted:g} GPUs; {free:g} are free.",
                "another run uses the rest; `llmops status` shows which",
            )

    def grow(self, *, parts_left: int) -> None:
        """Start one more replica where the config allows it and the cluster has room."""
        import ray

        now_s = time.monotonic()
        count = len(self.ready) + len(self._loading)
        enough = count >= self._max or parts_left <= count * PARTS_AT_ONCE
        if enough or self._loading or now_s - self._scaled_s < _SCALE_EVERY_S:
            return
        self._scaled_s = now_s
        free, gpus = ray.available_resources(), self._setup.deployment.spec.num_gpus
        if free.get("GPU", 0) >= gpus if gpus else free.get("CPU", 0) >= 1:
            self._start(max(one.index for one in self.ready) + 1 if self.ready else count)

    def stop(self) -> None:
        """Ask scorers to leave their parts and engines to drop them; engines stay loaded."""
        for one in self.ready:
            one.scorer.cancel.remote()
            one.engine.drop.remote(self._setup.caller)

    def end(self) -> None:
        """End the scorers; engines stay until nobody has used them for `keep_s`."""
        import ray

        for one in self.ready:
            ray.kill(one.scorer, no_restart=True)
            # What a scorer of a run that failed has sent, nobody waits for either.
            one.engine.drop.remote(self._setup.caller)
        self.ready = []
