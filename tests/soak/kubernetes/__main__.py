"""Chaos: `python -m tests.soak.kubernetes --minutes 10 --seed 7 [--runs 4]`.

Several runs go on at a time, one after the other, on a cluster whose API server, operator and
kubelets are stand-ins and are killed with SIGKILL and started again at random from the seed. Ray,
the trainings and the clients are real: this process, and one that reads for the whole time. After
each storm and ten seconds of calm all that both show is compared with what is so in the API
server's objects and in the pods; at the end each journal with that of the pods. It ends with 1 if
anything was wrong or has grown.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.soak.kubernetes.place import Place
from tests.soak.kubernetes.rounds import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kubernetes", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--runs", type=int, default=4, help="that go on at a time")
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.minutes:g} minutes, {asked.runs} runs at a time", flush=True)
    with Place(num_runs=asked.runs) as place:
        soak = Soak(place, minutes=asked.minutes, seed=asked.seed, num_runs=asked.runs)
        try:
            soak.run()
        except KeyboardInterrupt:
            print("interrupted: what was done until now", flush=True)
            soak.report()
            return 130
        return soak.report()


if __name__ == "__main__":
    sys.exit(main())
