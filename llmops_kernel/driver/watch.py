"""Watches a run from a thread of its driver: system metrics, the slow worker, the stalled run.

Little is imported here: the rest is by the thread, when the workers are starting already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from llmops_kernel.config.models.section import MonitorConfig
from llmops_kernel.driver.beats import FIRST_STEP, Beat, Member, claim_beats, remove_beats
from llmops_kernel.metrics.events import Event, StallEvent, SystemEvent, WarningEvent
from llmops_kernel.metrics.system import sample_interval_s, stacks_text, verdict
from llmops_kernel.store.record import RunSpec

if TYPE_CHECKING:
    from llmops_kernel.driver.radar import SlowWatch, Stall, StallWatch
    from llmops_kernel.driver.stacks import Standing
    from llmops_kernel.driver.system import GpuReader, NodeSample, NodeSampler

_LOOK_S: Final = 1.0
_ANSWER_S: Final = 5.0
_STACKS_S: Final = 20.0
_WITHOUT_STEP_S: Final = 60.0
"""After so long nodes are measured though no step has ended: the start is not delayed any more."""
_LONG_PHASE: Final = 10.0
_REST = "llmops stalled"


class RunWatch:
    """A thread that journals what it sees; nothing that goes wrong in it ends a run."""

    def __init__(
        self,
        emit: Callable[[Event], object],
        spec: RunSpec,
        settings: MonitorConfig,
        *,
        folder: Path,
        learns_pauses: bool = False,
        gpus: GpuReader | None = None,
    ) -> None:
        """Set it up. `folder`: the run's on this node. `learns_pauses`: as of `StallWatch`."""
        self._emit, self._spec, self._settings, self._folder = emit, spec, settings, folder
        self._learns_pauses = learns_pauses
        self._stalls: StallWatch | None = None
        self._slow: SlowWatch
        self._named: set[int] = set()
        self._gpus = gpus
        self._own_node = ""
        self._here: NodeSampler | None = None
        self._nodes: frozenset[str] = frozenset()
        self._there: dict[str, Any] = {}
        self._members: Mapping[str, Sequence[Member]] = {}
        self._energy: dict[str, float] = {}
        self._begun_s = self._due_s = time.monotonic()
        self._has_begun = False
        self._stall: Stall | None = None
        self._stall_message, self._dump_s = "", 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="llmops-watch")

    def begin(self, *, node: str = "") -> None:
        """Begin to watch; `node`: Ray's id of this node, where the driver uses Ray."""
        self._own_node = node
        self._begun_s = self._due_s = time.monotonic()
        self._thread.start()

    def use(self, nodes: Iterable[str]) -> None:
        """Watch these nodes too, by Ray's ids, instead of those before."""
        self._nodes = frozenset(nodes) - {self._own_node, ""}

    def take(self, members: Mapping[str, Sequence[Member]]) -> None:
        """Measure these processes too, which write no beats; by Ray's id of their node."""
        self._members = members

    @property
    def is_stalled(self) -> bool:
        """Return whether no step ends any more."""
        return self._stall is not None

    def end(self) -> None:
        """Stop watching, and delete what the workers said."""
        self._over.set()
        if self._thread.ident is None:  # It never began.
            return
        self._thread.join(_ANSWER_S)
        remove_beats(self._spec.run_id, self._spec.attempt)
        for actor in self._there.values():
            with suppress(Exception):
                actor.close.remote()

    def _run(self) -> None:
        if self._over.wait(_LOOK_S):
            return
        with suppress(Exception):
            self._prepare()
            for message in self._here.leftovers() if self._here else ():
                self._emit(WarningEvent(message=message, remedy=_LEFTOVER_REMEDY))
        while not self._over.wait(_LOOK_S):
            try:
                self._look(time.monotonic())
            except Exception as error:  # What is only looked at must not end a run.
                if not self._over.is_set():
                    print(f"[llmops] the run is not watched any more: {error!r}", flush=True)
                return

    def _prepare(self) -> None:
        from llmops_kernel.driver.radar import SlowWatch, StallWatch
        from llmops_kernel.driver.system import NodeSampler

        spec, factor = self._spec, self._settings.stall_after
        if factor is not None:
            self._stalls = StallWatch(factor=factor, learns_pauses=self._learns_pauses)
        self._slow = SlowWatch()
        self._here = NodeSampler(
            spec.run_id,
            spec.attempt,
            node=self._own_node,
            folder=str(self._folder),
            gpus=self._gpus,
        )
        claim_beats(spec.run_id, spec.attempt)

    def _look(self, now_s: float) -> None:
        self._start_samplers(now_s)
        beats = {beat.rank: beat for answer in self._ask("beats") for beat in answer}
        self._has_begun |= bool(self._members) or any(beat.step for beat in beats.values())
        for slow in self._slow.look(beats, now_s):
            if slow.rank not in self._named:
                self._named.add(slow.rank)
                self._emit(WarningEvent(message=slow.sentence, remedy=_SLOW_REMEDY))
        if self._stalls:
            self._look_for_stall(self._stalls, beats, now_s)
        every_s = self._settings.every_s
        if every_s is not None and now_s >= self._due_s and self._is_time(now_s):
            self._due_s = now_s + sample_interval_s(now_s - self._begun_s, every_s=every_s)
            self._sample()

    def _is_time(self, now_s: float) -> bool:
        return self._has_begun or now_s - self._begun_s >= _WITHOUT_STEP_S

    # --- Nodes ---

    def _start_samplers(self, now_s: float) -> None:
        """Start an actor on each other node, after the first step; forget those that are left."""
        for node in [node for node in self._there if node not in self._nodes]:
            self._there.pop(node)
        missing = [node for node in self._nodes if node not in self._there]
        if not missing:
            return
        if not self._is_time(now_s):
            from llmops_kernel.driver import kv_store as kv

            key = kv.key(self._spec.run_id, self._spec.attempt, FIRST_STEP)
            self._has_begun = bool(kv.get(key))
        if self._is_time(now_s):
            self._there |= {node: self._sampler_on(node) for node in missing}

    def _sampler_on(self, node: str) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from llmops_kernel.driver.system import NodeSampler

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        sampler = ray.remote(num_cpus=0, scheduling_strategy=there)(NodeSampler)
        spec = self._spec
        return sampler.remote(spec.run_id, spec.attempt, node=node, folder=str(self._folder))

    def _ask(
        self,
        name: str,
        *,
        arguments: Callable[[str], tuple[Any, ...]] = lambda _: (),
        timeout_s: float = _ANSWER_S,
    ) -> list[Any]:
        """Return what that method of the samplers answers, of all nodes that do so in time.

        `arguments` returns those of a node.
        """
        assert self._here is not None
        answers = [getattr(self._here, name)(*arguments(self._own_node))]
        if not self._there:
            return answers
        import ray

        calls = [
            getattr(actor, name).remote(*arguments(node)) for node, actor in self._there.items()
        ]
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=timeout_s)
        for call in done:
            with suppress(ray.exceptions.RayError):  # Its node is gone.
                answers.append(ray.get(call))
        return answers

    # --- System metrics ---

    def _sample(self) -> None:
        members = self._members
        samples: list[NodeSample] = self._ask(
            "sample", arguments=lambda node: (members.get(node, ()),)
        )
        for sample in samples:
            if sample.energy_j is not None:
                self._energy[sample.host.node or sample.host.host] = sample.energy_j
        slow = self._slow.slow
        workers = {worker.rank: worker for sample in samples for worker in sample.workers}
        self._emit(
            SystemEvent(
                workers=tuple(
                    worker.model_copy(update={"is_slow": True, "slow_part": slow[rank].part})
                    if rank in slow
                    else worker
                    for rank, worker in sorted(workers.items())
                ),
                hosts=tuple(sample.host for sample in samples),
                energy_j=sum(self._energy.values()) if self._energy else None,
            )
        )

    # --- A stalled run ---

    def _look_for_stall(self, watch: StallWatch, beats: Mapping[int, Beat], now_s: float) -> None:
        from llmops_kernel.driver.stacks import is_known_to_take_long

        stall = watch.look(beats, now_s)
        if stall is None:
            if self._stall is not None:
                self._emit(StallEvent(state="end", step=self._stall.step))
                print("[llmops] steps end again", flush=True)
            self._stall, self._stall_message = None, ""
            return
        if self._stall is not None and stall.waited_s < self._dump_s:
            return
        answers = self._ask("stacks", timeout_s=_STACKS_S)
        # Two nodes of Ray on one machine see the same processes.
        by_rank: dict[int, Standing] = {one.rank: one for answer in answers for one in answer}
        standings = list(by_rank.values())
        again = {beat.rank: beat for answer in self._ask("beats") for beat in answer}
        if watch.look(again, time.monotonic()) is None:
            return  # A step has ended meanwhile.
        if self._stall is None and is_known_to_take_long(standings, guess=self._learns_pauses):
            watch.wait_longer(stall.waited_s * (_LONG_PHASE if self._learns_pauses else 1.0))
            return
        self._report(stall, standings)

    def _report(self, stall: Stall, standings: Sequence[Standing]) -> None:
        """Journal where all stand; while it lasts again after twice as long, if that changes."""
        from llmops_kernel.driver.stacks import grouped

        is_new = self._stall is None
        self._stall, self._dump_s = stall, 2 * stall.waited_s
        groups = grouped(standings)
        message = verdict(groups)
        if message == self._stall_message:
            return
        self._stall_message = message
        text = stacks_text(groups)
        self._emit(
            StallEvent(
                state="begin",
                step=stall.step,
                waited_s=stall.waited_s,
                usual_s=stall.usual_s,
                message=message,
                groups=groups,
                file=self._write(text, stall.step),
            )
        )
        print(f"[llmops] no step for {stall.waited_s:.0f} s: {message}\n{text}", flush=True)
        if is_new:
            run = self._spec.run_id
            usual_s = stall.usual_s
            usual = "" if usual_s is None else f", which usually takes {usual_s:.3g} s"
            self._emit(
                WarningEvent(
                    message=f"No step for {stall.waited_s:.0f} s after step {stall.step:,}{usual}."
                    f" {message}",
                    remedy=f"wait; or `{_REST} {run}` for the stacks; or `{_REST} {run} --restart`"
                    " to go on from the last checkpoint; a stopped process goes on with"
                    " `kill -CONT PID`",
                )
            )

    def _write(self, text: str, step: int) -> str:
        """Write the stacks into a file of the run; return its path, empty where it has no place."""
        path = self._folder / "logs" / f"stacks-{self._spec.attempt}-{step}.txt"
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
            return str(path)
        return ""


_SLOW_REMEDY = (
    "look at that host's clocks, temperature and other processes in the panel's system charts; for"
    " data, at its disk and data.streaming"
)
_LEFTOVER_REMEDY = "end the process (`kill PID` on its node), or reset the GPU (`nvidia-smi -r`)"
