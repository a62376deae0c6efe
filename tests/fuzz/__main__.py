"""Fuzz for longer: `python -m tests.fuzz --minutes 30 --seed 7`; stops at the first failure."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.examples import SEED_ENV_VAR, TIMES_ENV_VAR


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--times", type=int, default=3, help="examples of a round, times CI's")
    asked = parser.parse_args()
    until_s, seed = time.monotonic() + 60 * asked.minutes, asked.seed
    while time.monotonic() < until_s:
        print(f"seed {seed}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", str(Path(__file__).parent)],
            env={**os.environ, SEED_ENV_VAR: str(seed), TIMES_ENV_VAR: str(asked.times)},
        )
        if done.returncode:
            print(f"again: python -m tests.fuzz --seed {seed} --times {asked.times}")
            return done.returncode
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
