"""A node's cores are divided among its processes, as the operating system sees it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from llmops_kernel.driver.nodes import threads_set_by_user, use_cores
if sys.argv[2] == "before":
    import torch
print(threads_set_by_user(), use_cores(int(sys.argv[1])))
import torch
print(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
"""


def run(num_processes: int, torch_loaded: str, omp: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(num_processes), torch_loaded],
        env={**os.environ, "OMP_NUM_THREADS": omp},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("torch_loaded", ["before", "after"])
@pytest.mark.parametrize("num_processes", [1, 2, 1000])
def test_torch_computes_with_its_share(num_processes: int, torch_loaded: str) -> None:
    share = str(max(1, len(os.sched_getaffinity(0)) // num_processes))
    # 1 is what Ray sets for an actor that asks for no CPU.
    assert run(num_processes, torch_loaded, "1") == ["False", share, share, share]


def test_a_number_of_the_user_is_seen() -> None:
    assert run(1, "after", "3")[0] == "True"
