"""Shell completion: what a shell gets when the tab key is pressed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest


def completed(line: str, cwd: Path) -> list[str]:
    """Call the command as bash does."""
    words = line.split(" ")
    env = {
        **os.environ,
        "_LLMOPS_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "llmops_kernel"], env=env, cwd=cwd, capture_output=True, text=True
    )
    return done.stdout.split()


@pytest.fixture
def runs(home: Path) -> Path:
    for number, name in enumerate(("toy-1", "toy-2", "menu-1")):
        (home / "runs" / name).mkdir(parents=True)
        os.utime(home / "runs" / name, (number, number))
    (home / "clusters" / "lab").mkdir(parents=True)
    return home.parent


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("llmops rm toy", ["toy-2", "toy-1"]),
        ("llmops stop toy-1 ", ["last", "menu-1", "toy-2", "toy-1"]),
        ("llmops show l", ["last"]),
        ("llmops status la", ["lab"]),
        ("llmops submit --cluster la", ["lab"]),
        ("llmops up gcp-h1", ["gcp-h100"]),
        ("llmops cluster render loc", ["local"]),
        ("llmops resub", ["resubmit"]),
    ],
)
def test_names_are_completed(runs: Path, line: str, expected: list[str]) -> None:
    assert completed(line, runs)[: len(expected)] == expected


def test_completion_loads_nothing_heavy(runs: Path) -> None:
    code = (
        "import sys\n"
        "from llmops_kernel.cli import complete\n"
        "assert complete.runs('toy') == ['toy-2', 'toy-1']\n"
        "assert complete.clusters('lab') == ['lab']\n"
        "assert 'gcp-h100' in complete.templates('g')\n"
        "heavy = ('pydantic', 'httpx', 'rich', 'ray', 'torch', 'pandas')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed("llmops rm toy", runs)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.9


def test_an_empty_home_completes_nothing(tmp_path: Path, home: Path) -> None:
    assert completed("llmops rm t", tmp_path) == []
