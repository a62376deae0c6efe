"""Soak: `python -m tests.soak --minutes 120 --seed 7`, as root.

Two users of one machine, each with a local Ray cluster, and a Kubernetes cluster that both share,
do things at random from a seed and suffer kills, full disks and clocks that jump. Nothing of it
is seen outside: it has mounts, processes and a network of its own. Not moved is the clock of the
clients: Linux gives a process no real-time clock of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

from tests.soak import namespaces


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--pace", type=float, default=1.0, help="share of one core that it may use on average"
    )
    asked = parser.parse_args()
    arguments = [f"--minutes={asked.minutes}", f"--seed={asked.seed}", f"--pace={asked.pace}"]
    place = os.environ.get(namespaces.INSIDE_ENV_VAR)
    if place == "init":
        return namespaces.become_init(arguments)
    if place is None:
        refused = namespaces.refusal()
        if refused:
            print(refused, file=sys.stderr)
            return 2
        namespaces.enter(arguments)
    return soak(asked)


def soak(asked: argparse.Namespace) -> int:
    from tests.soak.rounds import Soak

    print(
        f"seed {asked.seed}, {asked.minutes:g} minutes, at most {asked.pace:g} of a core",
        flush=True,
    )
    work = Soak(minutes=asked.minutes, seed=asked.seed, pace=asked.pace)
    work.make()
    try:
        work.run()
    except KeyboardInterrupt:
        print("interrupted: what was done until now", flush=True)
    return work.report()


if __name__ == "__main__":
    sys.exit(main())
