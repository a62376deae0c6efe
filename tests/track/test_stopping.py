"""All workers stop after the same step, however stale what each has read."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.track.stopping import ASKS, STOP, BoardReader, FileBoard, StopAgreement

MAX_AGE_S = 0.5


class Simulated:
    """Time, a board, and readers that were last refreshed some time ago."""

    def __init__(self, seed: int) -> None:
        self.now_s = 0.0
        self.values: dict[str, Any] = {}
        self.random = random.Random(seed)
        self.readers: list[BoardReader] = []

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def put(self, name: str, value: Any) -> None:
        self.values[name] = value

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)

    def reader(self, name: str) -> BoardReader:
        made = BoardReader(self, name, max_age_s=MAX_AGE_S, clock=self.clock, in_background=False)
        self.readers.append(made)
        return made

    def pass_time(self, seconds: float) -> None:
        """Background threads read now and then meanwhile."""
        for _ in range(4):
            self.now_s += seconds / 4
            for reader in self.readers:
                if self.random.random() < 0.3:
                    reader._read()


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    world_size=st.integers(1, 8),
    pace_s=st.sampled_from([0.0001, 0.01, 0.2, 0.6, 3.0]),
    asked_at=st.integers(0, 40),
)
def test_every_rank_answers_true_in_the_same_call(
    seed: int, world_size: int, pace_s: float, asked_at: int
) -> None:
    simulated = Simulated(seed)
    ranks = [
        StopAgreement(
            simulated,
            rank=rank,
            world_size=world_size,
            reader=simulated.reader,
            max_age_s=MAX_AGE_S,
            clock=simulated.clock,
            sleep=simulated.sleep,
        )
        for rank in range(world_size)
    ]
    for call in itertools.count():
        if call == asked_at:
            simulated.put(STOP, True)
        # The exchange of gradients: all have left the last call before one enters the next.
        order = simulated.random.sample(range(world_size), world_size)
        answers = []
        for rank in order:
            simulated.pass_time(pace_s * simulated.random.random())
            answers.append(ranks[rank].ask())
        assert len(set(answers)) == 1, f"call {call}: {answers}"
        if answers[0]:
            break
        assert call < asked_at + 3 + MAX_AGE_S / (pace_s / 100), "never stopped"


def test_without_a_request_nobody_stops_and_the_driver_knows_that_the_script_asks(
    tmp_path: Path,
) -> None:
    board = FileBoard(tmp_path)

    def reader(name: str) -> BoardReader:
        return BoardReader(board, name, max_age_s=0)

    one = StopAgreement(board, rank=0, world_size=1, reader=reader, max_age_s=0)
    assert board.get(ASKS) is None
    assert not one.ask()
    assert board.get(ASKS) is True
    board.put(STOP, True)
    assert one.ask()


def test_a_board_that_cannot_be_read_stops_nothing() -> None:
    class Broken:
        def get(self, name: str) -> Any:
            raise ConnectionError("the head is away")

        def put(self, name: str, value: Any) -> None: ...

    reader = BoardReader(Broken(), STOP, max_age_s=0.1, in_background=False)
    assert reader.latest() is None
