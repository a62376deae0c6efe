"""Kills beside other work: `python -m tests.soak.kills --kills 20 --load 6 --seed 7`.

On one local cluster a training and a scoring run again and again, beside processes that never rest.
One victim after the other gets SIGKILL: driver, train worker, engine, GCS, raylet, fork server, its
keeper, a client that follows, a Jupyter server that follows. After each, journals, rows and
processes are read without our own code, and what `runs`, `show`, `status` and the server say is
compared with them. It ends with 1 if anything was wrong, and ends all that it has started.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.kills.place import Place, busy, environment, remove
from tests.soak.kills.rounds import Rounds
from tests.soak.kills.victims import VICTIMS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no kill begins")
    parser.add_argument("--load", type=int, default=6, help="processes that never rest")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="victims with commas between them")
    parser.add_argument("--keep", action="store_true", help="keep the home")
    asked = parser.parse_args()
    environment()
    root = Path(tempfile.mkdtemp(prefix="llmops-k-"))
    began_s = time.monotonic()
    print(f"seed {asked.seed}, {asked.kills} kills beside {asked.load} processes", flush=True)
    rounds = Rounds(Place(root), seed=asked.seed, only=tuple(filter(None, asked.only.split(","))))
    try:
        with busy(asked.load):
            rounds.begin()
            rounds.run(asked.kills, until_s=began_s + 60 * asked.minutes)
            rounds.finish()
    except KeyboardInterrupt:
        rounds.wrong.append("interrupted")
    finally:
        rounds.close()
        if not asked.keep:
            remove(root)
    return report(rounds, seconds=time.monotonic() - began_s)


def report(rounds: Rounds, *, seconds: float) -> int:
    print(f"\n{'victim':12} {'kills':>5} {'settled after, median':>22} {'longest':>8} {'wrong':>6}")
    for victim in VICTIMS:
        kills = [one for one in rounds.kills if one.victim == victim]
        if kills:
            times = [one.settled_s for one in kills]
            wrong = sum(len(one.wrong) for one in kills)
            print(
                f"{victim:12} {len(kills):5} {statistics.median(times):20.1f} s"
                f" {max(times):6.1f} s {wrong:6}"
            )
    for text in rounds.wrong:
        print(f"WRONG: {text}")
    done = f"{len(rounds.kills)} kills, {rounds.ended} runs to their ends"
    print(f"{done} in {seconds:.0f} s, {len(rounds.wrong)} wrong")
    return 1 if rounds.wrong or not rounds.kills else 0


if __name__ == "__main__":
    sys.exit(main())
