"""Kills API server, operator and kubelets with SIGKILL and starts them again, from a seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

PARTS = ("API server", "operator", "kubelets")
STRIKES = (1, 3)
"""Between two times of calm."""
_DOWN_S = ((0.1, 1.0), (1.0, 8.0), (1.0, 8.0), (8.0, 20.0))
"""Seconds until a part is started again; each as likely as the others."""


@dataclass(frozen=True)
class Strike:
    """Some parts are killed at once; each is started again when its time has passed."""

    down_s: Mapping[str, float]
    """By part."""
    pause_s: float
    """After the strike before it."""


@dataclass(frozen=True)
class Part:
    """What can be killed. `start` returns when it works again."""

    kill: Callable[[], None]
    start: Callable[[], None]


def storms(seed: int) -> Iterator[list[Strike]]:
    """The same ones for the same seed, for ever."""
    chance = random.Random(seed)
    while True:
        yield [_strike(chance) for _ in range(chance.randint(*STRIKES))]


def _strike(chance: random.Random) -> Strike:
    (number,) = chance.choices((1, 2, 3), (5, 3, 2))
    parts = chance.sample(PARTS, number)
    down_s = {part: chance.uniform(*chance.choice(_DOWN_S)) for part in parts}
    return Strike(down_s, chance.uniform(0.5, 5.0))


class Chaos:
    """Carries out storms and counts what it did."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self.kills: Counter[str] = Counter()
        self.down_s: Counter[str] = Counter()
        """Seconds from the kill until it worked again."""
        self.broken: list[str] = []

    def storm(self, strikes: list[Strike]) -> None:
        """Returns when all parts work."""
        for number, strike in enumerate(strikes):
            time.sleep(strike.pause_s if number else 0)
            self._strike(strike)

    def _strike(self, strike: Strike) -> None:
        begun_s = time.monotonic()
        for name in strike.down_s:
            self._parts[name].kill()
            self.kills[name] += 1
        threads = [
            threading.Thread(target=self._start, args=(name, begun_s + down_s, begun_s))
            for name, down_s in strike.down_s.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _start(self, name: str, at_s: float, begun_s: float) -> None:
        time.sleep(max(0.0, at_s - time.monotonic()))
        try:
            self._parts[name].start()
        except Exception as error:  # Of the stand-ins, not of the product.
            self.broken.append(f"the {name} did not start: {type(error).__name__}: {error}")
        self.down_s[name] += time.monotonic() - begun_s
